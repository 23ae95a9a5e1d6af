// Submit a job, follow it, print node and chips of each rank, cancel it, and wait for its end.
package main

import (
	"encoding/json"
	"fmt"
	"github.com/nats-io/nats.go"
	"os"
)

func read(message *nats.Msg, err error) (fields map[string]any) {
	if err != nil || json.Unmarshal(message.Data, &fields) != nil || fields["ok"] == false {
		panic(fmt.Sprint(err, fields["error"]))
	}
	return fields
}

func main() { // in subjects, bytes of names other than letters, digits, - and _ are escaped
	api, name, uid, over := "berth."+os.Args[2]+".api.", os.Args[3], nats.NewInbox()[7:], false // a uid is a random text
	nc, _ := nats.Connect(os.Args[1], nats.RetryOnFailedConnect(true))
	key := fmt.Sprintf(`{"name": %q, "namespace": "team-a", "uid": %q}`, name, uid)
	read(nc.Request(api+"submit", []byte(`{"job": {"apiVersion": "berth/v1", "kind": "Job", "metadata": `+key+`,
		"spec": {"product": "module910bx8", "replicas": 2, "chips": 8}}}`), 10*nats.DefaultTimeout))
	for page := map[string]any{"position": 0.0, "mark": ""}; !over; {
		page = read(nc.Request(api+"events", fmt.Appendf(nil, `{"namespace": "team-a", "name": %q, "after": %.0f,
			"mark": %q, "wait_s": 5}`, name, page["position"], page["mark"]), 10*nats.DefaultTimeout))
		for _, stored := range page["events"].([]any) {
			event := stored.(map[string]any)["event"].(map[string]any)
			fmt.Println(event["phase"], event["sentence"])
			for _, each := range event["ranks"].([]any) {
				rank := each.(map[string]any)
				fmt.Println("rank", rank["rank"], "on", rank["node"], "chips", rank["chips"])
			}
			if event["uid"] == uid && event["phase"] == "placed" {
				read(nc.Request(api+"cancel", []byte(key), 10*nats.DefaultTimeout))
			}
			over = over || event["uid"] == uid && event["final"] == true
		}
	}
}
