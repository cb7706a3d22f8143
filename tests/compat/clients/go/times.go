package main

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// times: ten records a second apart from `start` on; asks for each time of `asked` and reads from there.
func times(c cluster, given options) error {
	start, err := strconv.ParseInt(given["start"], 10, 64)
	if err != nil {
		return err
	}
	var records []*kgo.Record
	for i := range 10 {
		at := time.UnixMilli(start + int64(i)*1000)
		records = append(records, &kgo.Record{Topic: "times", Timestamp: at, Value: []byte(strconv.Itoa(i))})
	}
	if err := c.send(records, kgo.ProducerLinger(5*time.Millisecond)); err != nil {
		return err
	}
	for _, asked := range strings.Split(given["asked"], ",") {
		at, err := strconv.ParseInt(asked, 10, 64)
		if err != nil {
			return err
		}
		if err := seek(c, at); err != nil {
			return err
		}
	}
	return nil
}

func seek(c cluster, at int64) error {
	var found kadm.ListedOffset
	err := c.administer(func(ctx context.Context, admin *kadm.Client) error {
		listed, err := admin.ListOffsetsAfterMilli(ctx, at, "times")
		found, _ = listed.Lookup("times", 0)
		return err
	})
	if err != nil {
		return err
	}
	if found.Timestamp == -1 { // there is none, and the offset is that of the end
		line{"asked": at, "offset": nil}.print()
		return nil
	}
	places := map[string]map[int32]kgo.Offset{"times": {0: kgo.NewOffset().AfterMilli(at)}}
	client, err := c.client(kgo.ConsumePartitions(places))
	if err != nil {
		return err
	}
	defer client.Close()
	var read []*kgo.Record
	err = await("a record", func() bool {
		read = append(read, poll(client)...)
		return len(read) > 0
	})
	if err == nil {
		first := read[0]
		line{"asked": at, "offset": found.Offset, "value": string(first.Value),
			"timestamp": first.Timestamp.UnixMilli()}.print()
	}
	return err
}
