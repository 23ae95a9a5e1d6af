"""Alert rules about the inventory."""

from typing import Final

from berth.runtime.monitoring.alerts import MINUTE_S, Alert, missing

ALERTS: Final = (
    missing(
        "inventory",
        "berth_inventory_nodes",
        "critical",
        "new jobs, and changes of nodes and pods, are not seen",
        instead="berth_nodesim_nodes",
    ),
    Alert(
        name="BerthNoNodes",
        expr="max by (namespace) (berth_inventory_nodes) == 0",
        for_s=5 * MINUTE_S,
        severity="critical",
        means="The inventory knows no node: no job can be placed.",
        do="See whether its service account may list Nodes, and whether it reads the right cluster.",
    ),
    Alert(
        name="BerthChipTwice",
        expr="max by (namespace) (berth_inventory_twice_named_chips) > 0",
        for_s=5 * MINUTE_S,
        severity="critical",
        means="{{ $value | humanize }} chips are named by more than one running pod: their work may disturb each other.",
        do="`berth nodes` and Events ChipTwice name the pods. Delete the one that does not belong there.",
    ),
    Alert(
        name="BerthMessagesRefused",
        expr="sum by (namespace) (increase(berth_inventory_refused_messages_total[1h])) > 0",
        for_s=0,
        severity="warning",
        means="NATS refuses {{ $value | humanize }} messages of the inventory for good: something of the cluster is not known.",
        do="The log of the inventory names the subject; the message is larger than max_payload, or a right is missing.",
    ),
    Alert(
        name="BerthInventoryFailures",
        expr="sum by (namespace) (rate(berth_inventory_failures_total[10m])) > 1",
        for_s=10 * MINUTE_S,
        severity="warning",
        means="{{ $value | humanize }} calls of the inventory to the API server fail each second.",
        do="The API server is overloaded or refuses: the log of the inventory has its answers.",
    ),
)
