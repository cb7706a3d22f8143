package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	patience = 30 * time.Second
	aMoment  = 50 * time.Millisecond
	// end is written after everything else; whoever reads it has read all.
	end = "end"
)

// cluster makes clients of one broker, and does with them what most scenarios need.
type cluster struct{ bootstrap string }

func (c cluster) client(opts ...kgo.Opt) (*kgo.Client, error) {
	all := []kgo.Opt{
		kgo.SeedBrokers(c.bootstrap),
		kgo.AllowAutoTopicCreation(),
		// A topic that is made by being asked for is there at the second time of asking, which could be 5 s later.
		kgo.MetadataMinAge(100 * time.Millisecond),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	}
	return kgo.NewClient(append(all, opts...)...)
}

// administer lends an administrator for as long as `work` lasts.
func (c cluster) administer(work func(context.Context, *kadm.Client) error) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return work(ctx, kadm.NewClient(client))
}

func (c cluster) createTopic(name string, partitions int32, settings map[string]*string) error {
	return c.administer(func(ctx context.Context, admin *kadm.Client) error {
		_, err := admin.CreateTopic(ctx, partitions, 1, settings, name)
		return err
	})
}

// send writes records into partition 0 of a topic, or wherever `partition` says, and waits for the acknowledgements.
func (c cluster) send(records []*kgo.Record, opts ...kgo.Opt) error {
	client, err := c.client(opts...)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return client.ProduceSync(ctx, records...).FirstErr()
}

// sendNumbers writes them as texts, one into each partition after the other.
func (c cluster) sendNumbers(topic string, from, to, partitions int) error {
	var records []*kgo.Record
	for i := from; i < to; i++ {
		value := []byte(strconv.Itoa(i))
		records = append(records, &kgo.Record{Topic: topic, Partition: int32(i % partitions), Value: value})
	}
	return c.send(records)
}

// readAll gives the records of partition 0 before the last one that says `end`, which it writes.
func (c cluster) readAll(topic string, isolation kgo.IsolationLevel) ([]*kgo.Record, error) {
	last := &kgo.Record{Topic: topic, Value: []byte(end)}
	if err := c.send([]*kgo.Record{last}); err != nil {
		return nil, err
	}
	start := map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}
	client, err := c.client(kgo.ConsumePartitions(start), kgo.FetchIsolationLevel(isolation))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	var found []*kgo.Record
	isRead := false
	err = await("the end of "+topic, func() bool {
		for _, record := range poll(client) {
			if string(record.Value) != end {
				found = append(found, record)
			}
			isRead = isRead || record.Offset == last.Offset
		}
		return isRead
	})
	return found, err
}

func (c cluster) readValues(topic string, isolation kgo.IsolationLevel) ([]string, error) {
	records, err := c.readAll(topic, isolation)
	values := []string{}
	for _, record := range records {
		values = append(values, string(record.Value))
	}
	return values, err
}

// poll gives what comes within a moment.
func poll(client *kgo.Client) []*kgo.Record {
	ctx, cancel := context.WithTimeout(context.Background(), aMoment)
	defer cancel()
	return client.PollFetches(ctx).Records()
}

func await(what string, isSo func() bool) error {
	for deadline := time.Now().Add(patience); !isSo(); {
		if time.Now().After(deadline) {
			return fmt.Errorf("waited %v for %s", patience, what)
		}
	}
	return nil
}
