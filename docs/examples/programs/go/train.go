// Submit a job, follow it, print node and chips of each rank, cancel it, and wait for its end.
package main

import (
	"encoding/json"
	"fmt"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"
	"os"
	"time"
)

func read(message *nats.Msg, err error) (fields map[string]any) {
	if err != nil || json.Unmarshal(message.Data, &fields) != nil || fields["ok"] == false {
		panic(fmt.Sprint(err, fields["error"]))
	}
	return fields
}

func main() { // in subjects, bytes of names other than letters, digits, - and _ are escaped
	cell, name, uid := os.Args[2], os.Args[3], nuid.Next()
	nc, _ := nats.Connect(os.Args[1], nats.RetryOnFailedConnect(true))
	js, _ := nc.JetStream()
	api, subject := "berth."+cell+".api.", "berth."+cell+".event.job.team-a."+name
	key := fmt.Sprintf(`{"name": %q, "namespace": "team-a", "uid": %q}`, name, uid)
	read(nc.Request(api+"submit", []byte(`{"job": {"apiVersion": "berth/v1", "kind": "Job", "metadata": `+key+`,
		"spec": {"product": "module910bx8", "replicas": 2, "chips": 8}}}`), 10*time.Second))
	events, _ := js.SubscribeSync(subject, nats.OrderedConsumer(), nats.BindStream("EVENTS_"+cell))
	for event := (map[string]any{}); event["uid"] != uid || event["final"] != true; {
		event = read(events.NextMsg(time.Hour))
		fmt.Println(event["phase"], event["sentence"])
		for _, each := range event["ranks"].([]any) {
			rank := each.(map[string]any)
			fmt.Println("rank", rank["rank"], "on", rank["node"], "chips", rank["chips"])
		}
		if event["uid"] == uid && event["phase"] == "placed" {
			read(nc.Request(api+"cancel", []byte(key), 10*time.Second))
		}
	}
}
