// What a publisher hears, and what becomes of bodies, headers and transactions.
package main

import (
	"bytes"
	"strconv"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"
)

func confirms(here *broker, given options) error {
	count, err := strconv.Atoi(given["count"])
	if err != nil {
		return err
	}
	channel, err := here.channel()
	if err != nil {
		return err
	}
	if err := durable(channel, "confirms", nil); err != nil {
		return err
	}
	answers, err := publishAll(channel, "confirms", publishings(numbered(count)...))
	if err != nil {
		return err
	}
	answers.print()
	deliveries, err := consume(channel, "confirms", false)
	if err != nil {
		return err
	}
	came, err := take(deliveries, count, acknowledge)
	if err != nil {
		return err
	}
	line{"read": texts(came)}.print()
	full, err := own(channel, amqp.Table{"x-max-length": 1, "x-overflow": "reject-publish"})
	if err != nil {
		return err
	}
	answers, err = publishAll(channel, full, publishings("first", "second"))
	if err != nil {
		return err
	}
	answers.print()
	return nil
}

func returns(here *broker, _ options) error {
	channel, err := here.channel()
	if err != nil {
		return err
	}
	returned := channel.NotifyReturn(make(chan amqp.Return, 1))
	answers, err := publishAll(channel, "nowhere", publishings("lost"))
	if err != nil {
		return err
	}
	back := <-returned
	line{
		"code": back.ReplyCode, "text": back.ReplyText, "exchange": back.Exchange, "key": back.RoutingKey,
		"body": string(back.Body),
	}.print()
	answers.print()
	return nil
}

func bodies(here *broker, given options) error {
	channel, err := here.channel()
	if err != nil {
		return err
	}
	queue, err := own(channel, nil)
	if err != nil {
		return err
	}
	var sent []amqp.Publishing
	for word := range strings.SplitSeq(given["sizes"], ",") {
		size, err := strconv.Atoi(word)
		if err != nil {
			return err
		}
		sent = append(sent, amqp.Publishing{Body: bytes.Repeat([]byte("0123456789abcdef!"), size/17+1)[:size]})
	}
	if _, err := publishAll(channel, queue, sent); err != nil {
		return err
	}
	deliveries, err := consume(channel, queue, true)
	if err != nil {
		return err
	}
	came, err := take(deliveries, len(sent), nil)
	if err != nil {
		return err
	}
	sizes, intact := []int{}, true
	for i, message := range came {
		sizes = append(sizes, len(message.Body))
		intact = intact && bytes.Equal(message.Body, sent[i].Body)
	}
	line{"sizes": sizes, "intact": intact}.print()
	return nil
}

func headers(here *broker, _ options) error {
	channel, err := here.channel()
	if err != nil {
		return err
	}
	queue, err := own(channel, nil)
	if err != nil {
		return err
	}
	table := amqp.Table{
		"text": "é", "small": int32(1), "large": int64(1) << 40, "half": 0.5, "flag": true, "none": nil,
		"list": []any{int32(1), "a", amqp.Table{"b": []any{false}}},
	}
	if _, err := publishAll(channel, queue, []amqp.Publishing{{Headers: table, Priority: 3, MessageId: "m"}}); err != nil {
		return err
	}
	message, _, err := channel.Get(queue, true)
	if err != nil {
		return err
	}
	line{"headers": message.Headers, "priority": message.Priority, "id": message.MessageId}.print()
	return nil
}

func transactions(here *broker, _ options) error {
	connection, err := here.connect()
	if err != nil {
		return err
	}
	channel, err := connection.Channel()
	if err != nil {
		return err
	}
	other, err := connection.Channel()
	if err != nil {
		return err
	}
	queue, err := own(other, nil)
	if err != nil {
		return err
	}
	if err := channel.Tx(); err != nil {
		return err
	}
	publish := func(body string) func() error {
		return func() error {
			return channel.Publish("", queue, false, false, amqp.Publishing{Body: []byte(body)})
		}
	}
	none := func() error { return nil }
	steps := []struct {
		after      string
		first, act func() error
	}{
		{"publish", none, publish("rolled back")},
		{"rollback", none, channel.TxRollback},
		{"commit", publish("kept"), channel.TxCommit},
	}
	for _, step := range steps {
		if err := step.first(); err != nil {
			return err
		}
		if err := step.act(); err != nil {
			return err
		}
		count, err := ready(other, queue)
		if err != nil {
			return err
		}
		line{"ready": count, "after": step.after}.print()
	}
	message, _, err := other.Get(queue, true)
	line{"read": string(message.Body)}.print()
	return err
}
