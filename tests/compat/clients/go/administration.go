package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// manyTopics: as many as `count` says, from their making to their end.
func manyTopics(c cluster, given options) error {
	count, err := strconv.Atoi(given["count"])
	if err != nil {
		return err
	}
	var names []string
	var records []*kgo.Record
	for i := range count {
		name := fmt.Sprintf("many-%04d", i)
		names = append(names, name)
		records = append(records, &kgo.Record{Topic: name, Value: []byte(name)})
	}
	return c.administer(func(ctx context.Context, admin *kadm.Client) error {
		created, err := admin.CreateTopics(ctx, 1, 1, nil, names...)
		if err != nil || created.Error() != nil {
			return fmt.Errorf("creating: %v, %v", err, created.Error())
		}
		if err := printOurs(c, "create"); err != nil {
			return err
		}
		if err := c.send(records); err != nil {
			return err
		}
		if err := readMany(c, names); err != nil {
			return err
		}
		deleted, err := admin.DeleteTopics(ctx, names...)
		if err != nil || deleted.Error() != nil {
			return fmt.Errorf("deleting: %v, %v", err, deleted.Error())
		}
		return printOurs(c, "delete")
	})
}

func readMany(c cluster, names []string) error {
	client, err := c.client(kgo.ConsumerGroup("many"), kgo.ConsumeRegex(), kgo.ConsumeTopics("many-.*"))
	if err != nil {
		return err
	}
	defer client.Close()
	read := map[string]bool{}
	err = await("a record of each topic", func() bool {
		for _, record := range poll(client) {
			read[record.Topic] = true
		}
		return len(read) >= len(names)
	})
	isAll := true
	for _, name := range names {
		isAll = isAll && read[name]
	}
	line{"did": "consume", "topics": len(read), "all": isAll}.print()
	return err
}

// printOurs counts the topics that begin as ours do, with a client that remembers none from before.
func printOurs(c cluster, did string) error {
	return c.administer(func(ctx context.Context, admin *kadm.Client) error {
		listed, err := admin.ListTopics(ctx)
		count := 0
		for _, name := range listed.Names() {
			if strings.HasPrefix(name, "many-") {
				count++
			}
		}
		line{"did": did, "topics": count}.print()
		return err
	})
}

// administration makes the administrator's usual calls; each prints what it was answered.
func administration(c cluster, _ options) error {
	return c.administer(func(ctx context.Context, admin *kadm.Client) error {
		retention := "86400000"
		settings := map[string]*string{"retention.ms": &retention}
		answer := func(call string, err error) { line{"call": call, "refused": refusal(err)}.print() }
		_, err := admin.CreateTopic(ctx, 3, -1, settings, "governed")
		answer("create", err)
		_, err = admin.CreateTopic(ctx, 3, -1, settings, "governed")
		answer("create again", err)
		grown, _ := admin.UpdatePartitions(ctx, 5, "governed")
		answer("grow", grown.Error())
		altered, _ := admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Name: "retention.ms", Value: ref("5000")}}, "governed")
		answer("alter", altered[0].Err)
		altered, _ = admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Name: "retention.ms", Value: ref("soon")}}, "governed")
		answer("alter badly", altered[0].Err)
		described, err := admin.DescribeTopicConfigs(ctx, "governed")
		if err != nil {
			return err
		}
		for _, setting := range described[0].Configs {
			if setting.Key == "retention.ms" {
				line{"call": "describe", "retention.ms": setting.MaybeValue()}.print()
			}
		}
		listed, err := admin.ListTopics(ctx, "governed")
		if err != nil {
			return err
		}
		line{"call": "list", "partitions": len(listed["governed"].Partitions)}.print()
		return administerRecords(c, ctx, admin)
	})
}

func administerRecords(c cluster, ctx context.Context, admin *kadm.Client) error {
	if err := c.sendNumbers("governed", 0, 10, 1); err != nil {
		return err
	}
	var places kadm.Offsets
	places.Add(kadm.Offset{Topic: "governed", Partition: 0, At: 4, LeaderEpoch: -1})
	cut, err := admin.DeleteRecords(ctx, places)
	if err != nil {
		return err
	}
	line{"call": "cut", "start": cut["governed"][0].LowWatermark}.print()
	ends, err := admin.ListEndOffsets(ctx, "governed")
	if err != nil {
		return err
	}
	last, _ := ends.Lookup("governed", 0)
	line{"call": "ends", "end": last.Offset}.print()
	committed, err := admin.CommitOffsets(ctx, "governors", places)
	if err != nil {
		return err
	}
	line{"call": "commit", "refused": refusal(committed.Error())}.print()
	lags, err := admin.Lag(ctx, "governors")
	if err != nil {
		return err
	}
	group := lags["governors"]
	line{"call": "lag", "state": group.State, "lag": group.Lag["governed"][0].Lag}.print()
	gone, err := admin.DeleteGroup(ctx, "governors")
	line{"call": "delete group", "refused": refusal(err), "group": gone.Group}.print()
	deleted, err := admin.DeleteTopics(ctx, "governed")
	if err != nil {
		return err
	}
	line{"call": "delete", "refused": refusal(deleted.Error())}.print()
	return nil
}

func ref(text string) *string { return &text }
