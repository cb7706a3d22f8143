package main

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// bothWays: three records in each of ten transactions, over two partitions; every third is aborted.
func bothWays(c cluster, _ options) error {
	if err := c.createTopic("transactions", 2, nil); err != nil {
		return err
	}
	client, err := c.client(kgo.TransactionalID("both-ways"))
	if err != nil {
		return err
	}
	defer client.Close()
	for i := range 10 {
		if err := oneTransaction(client, i, kgo.TransactionEndTry(i%3 != 0)); err != nil {
			return err
		}
	}
	if err := printRead(c, "read_committed", kgo.ReadCommitted()); err != nil {
		return err
	}
	return printRead(c, "read_uncommitted", kgo.ReadUncommitted())
}

func printRead(c cluster, name string, isolation kgo.IsolationLevel) error {
	values, err := c.readValues("transactions", isolation)
	line{"isolation": name, "read": values}.print()
	return err
}

func oneTransaction(client *kgo.Client, number int, outcome kgo.TransactionEndTry) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := client.BeginTransaction(); err != nil {
		return err
	}
	record := func(partition int32, text string) *kgo.Record {
		value := []byte(fmt.Sprintf("%d %s", number, text))
		return &kgo.Record{Topic: "transactions", Partition: partition, Value: value}
	}
	if err := client.ProduceSync(ctx, record(0, "a"), record(1, "elsewhere"), record(0, "b")).FirstErr(); err != nil {
		return err
	}
	return client.EndTransaction(ctx, outcome)
}

// offsets: seven records are consumed in a transaction that is aborted, then again in one that is committed.
func offsets(c cluster, _ options) error {
	if err := c.sendNumbers("offsets", 0, 7, 1); err != nil {
		return err
	}
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(c.bootstrap), kgo.AllowAutoTopicCreation(), kgo.TransactionalID("offsets"),
		kgo.ConsumerGroup("offsets"), kgo.ConsumeTopics("offsets"), kgo.RequireStableFetchOffsets(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return err
	}
	defer session.Close()
	for _, outcome := range []string{"aborted", "committed"} {
		if err := moveSeven(session, kgo.TransactionEndTry(outcome == "committed")); err != nil {
			return err
		}
		if err := printCommitted(c, outcome); err != nil {
			return err
		}
	}
	return nil
}

func moveSeven(session *kgo.GroupTransactSession, outcome kgo.TransactionEndTry) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := session.Begin(); err != nil {
		return err
	}
	for read := 0; read < 7; {
		fetches := session.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		read += fetches.NumRecords()
	}
	if err := session.ProduceSync(ctx, &kgo.Record{Topic: "moved", Value: []byte("moved")}).FirstErr(); err != nil {
		return err
	}
	isCommitted, err := session.End(ctx, outcome)
	if err == nil && isCommitted != bool(outcome) {
		return fmt.Errorf("the transaction was committed: %v", isCommitted)
	}
	return err
}

func printCommitted(c cluster, outcome string) error {
	return c.administer(func(ctx context.Context, admin *kadm.Client) error {
		found, err := admin.FetchOffsets(ctx, "offsets")
		if err != nil {
			return err
		}
		var committed any
		if place, isThere := found.Lookup("offsets", 0); isThere {
			committed = place.At
		}
		line{"outcome": outcome, "committed": committed}.print()
		return nil
	})
}

// fenced: a second producer of the same name takes over; the first can no longer commit.
func fenced(c cluster, _ options) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	old, err := c.client(kgo.TransactionalID("fenced"))
	if err != nil {
		return err
	}
	defer old.Close()
	taker, err := c.client(kgo.TransactionalID("fenced"))
	if err != nil {
		return err
	}
	defer taker.Close()
	if err := old.BeginTransaction(); err != nil {
		return err
	}
	if err := old.ProduceSync(ctx, &kgo.Record{Topic: "fenced", Value: []byte("lost")}).FirstErr(); err != nil {
		return err
	}
	if _, _, err := taker.ProducerID(ctx); err != nil {
		return err
	}
	line{"refused": refusal(old.EndTransaction(ctx, kgo.TryCommit))}.print()
	if err := taker.BeginTransaction(); err != nil {
		return err
	}
	if err := taker.ProduceSync(ctx, &kgo.Record{Topic: "fenced", Value: []byte("kept")}).FirstErr(); err != nil {
		return err
	}
	if err := taker.EndTransaction(ctx, kgo.TryCommit); err != nil {
		return err
	}
	values, err := c.readValues("fenced", kgo.ReadCommitted())
	line{"read": values}.print()
	return err
}
