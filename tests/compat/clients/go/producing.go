package main

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var codecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

var acknowledgements = map[string]kgo.Acks{"0": kgo.NoAck(), "1": kgo.LeaderAck(), "all": kgo.AllISRAcks()}

// everyCodec uses each with each kind of acknowledgement, in a topic of its own that nobody made before.
func everyCodec(c cluster, given options) error {
	for _, codec := range strings.Split(given["codecs"], ",") {
		for _, acks := range strings.Split(given["acks"], ",") {
			if err := oneCodec(c, codec, acks); err != nil {
				return fmt.Errorf("%s, acks %s: %w", codec, acks, err)
			}
		}
	}
	return nil
}

func oneCodec(c cluster, codec, acks string) error {
	topic := "codecs-" + codec + "-" + acks
	var records []*kgo.Record
	for i := range 20 {
		number := strconv.Itoa(i)
		records = append(records, &kgo.Record{
			Topic:   topic,
			Key:     []byte("key-" + number),
			Value:   []byte(codec + " " + acks + " " + number + " " + strings.Repeat("x", 200)),
			Headers: []kgo.RecordHeader{{Key: "number", Value: []byte(number)}},
		})
	}
	err := c.send(records, kgo.ProducerBatchCompression(codecs[codec]), kgo.RequiredAcks(acknowledgements[acks]),
		kgo.DisableIdempotentWrite(), kgo.ProducerLinger(20*time.Millisecond))
	if err != nil {
		return err
	}
	var offsets []int64
	for _, record := range records {
		offsets = append(offsets, record.Offset)
	}
	line{"topic": topic, "offsets": offsets}.print()
	found, err := c.readAll(topic, kgo.ReadUncommitted())
	read := [][]any{}
	for _, r := range found {
		read = append(read, []any{r.Offset, string(r.Key), string(r.Value), string(r.Headers[0].Value)})
	}
	line{"topic": topic, "read": read}.print()
	return err
}

// idempotent writes many small batches, several on their way at a time, as franz-go does by itself.
func idempotent(c cluster, _ options) error {
	var records []*kgo.Record
	for i := range 500 {
		records = append(records, &kgo.Record{Topic: "idempotent", Value: []byte(strconv.Itoa(i))})
	}
	if err := c.send(records, kgo.ProducerBatchMaxBytes(512)); err != nil {
		return err
	}
	values, err := c.readValues("idempotent", kgo.ReadUncommitted())
	line{"read": values}.print()
	return err
}

// large sends as much as a topic takes by default, as much as another is set to take, and more than either takes.
func large(c cluster, _ options) error {
	limit := "8000000"
	if err := c.createTopic("large-set", 1, map[string]*string{"max.message.bytes": &limit}); err != nil {
		return err
	}
	if err := c.createTopic("large-default", 1, nil); err != nil {
		return err
	}
	sendOne := func(topic string, size int) error {
		records := []*kgo.Record{{Topic: topic, Value: body(size)}}
		return c.send(records, kgo.ProducerBatchMaxBytes(10_000_000),
			kgo.ProducerBatchCompression(kgo.NoCompression()))
	}
	for topic, sizes := range map[string][]int{"large-default": {1_000_000}, "large-set": {5_000_000, 7_900_000}} {
		for _, size := range sizes {
			if err := sendOne(topic, size); err != nil {
				return err
			}
		}
	}
	for _, topic := range []string{"large-default", "large-set"} {
		line{"topic": topic, "refused": refusal(sendOne(topic, 8_100_000))}.print()
	}
	for _, topic := range []string{"large-default", "large-set"} {
		records, err := c.readAll(topic, kgo.ReadUncommitted())
		if err != nil {
			return err
		}
		sizes, isIntact := []int{}, true
		for _, record := range records {
			sizes = append(sizes, len(record.Value))
			isIntact = isIntact && bytes.Equal(record.Value, body(len(record.Value)))
		}
		line{"topic": topic, "sizes": sizes, "intact": isIntact}.print()
	}
	return nil
}

func body(size int) []byte {
	return bytes.Repeat([]byte("0123456789abcdefghi"), size/19+1)[:size]
}
