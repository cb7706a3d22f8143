// What a consumer gets, and when; questions and answers.
package main

import (
	"errors"
	"strconv"

	amqp "github.com/rabbitmq/amqp091-go"
)

func prefetch(here *broker, _ options) error {
	channel, err := here.channel()
	if err != nil {
		return err
	}
	queue, err := own(channel, nil)
	if err != nil {
		return err
	}
	if _, err := publishAll(channel, queue, publishings(numbered(10)...)); err != nil {
		return err
	}
	if err := channel.Qos(3, 0, false); err != nil {
		return err
	}
	deliveries, err := consume(channel, queue, false)
	if err != nil {
		return err
	}
	var came []amqp.Delivery
	tell := func(more int) error {
		taken, err := take(deliveries, more, nil)
		if err != nil {
			return err
		}
		came = append(came, taken...)
		left, err := ready(channel, queue)
		if err != nil {
			return err
		}
		line{"came": texts(came), "ready": left}.print()
		return nil
	}
	if err := tell(3); err != nil {
		return err
	}
	if err := came[1].Ack(true); err != nil {
		return err
	}
	return tell(2)
}

func flags(messages []amqp.Delivery) [][]any {
	found := [][]any{}
	for _, message := range messages {
		found = append(found, []any{string(message.Body), message.Redelivered})
	}
	return found
}

func cut(here *broker, _ options) error {
	channel, err := here.channel()
	if err != nil {
		return err
	}
	lost := here.connections[0].NotifyClose(make(chan *amqp.Error, 1))
	if err := durable(channel, "cut", nil); err != nil {
		return err
	}
	if _, err := publishAll(channel, "cut", publishings(numbered(5)...)); err != nil {
		return err
	}
	if err := channel.Qos(3, 0, false); err != nil {
		return err
	}
	deliveries, err := consume(channel, "cut", false)
	if err != nil {
		return err
	}
	came, err := take(deliveries, 3, nil)
	if err != nil {
		return err
	}
	line{"came": flags(came)}.print()
	<-lost
	line{"event": "lost"}.print()
	again, err := here.channel()
	if err != nil {
		return err
	}
	if deliveries, err = consume(again, "cut", false); err != nil {
		return err
	}
	if came, err = take(deliveries, 5, acknowledge); err != nil {
		return err
	}
	line{"came": flags(came)}.print()
	return nil
}

func rpc(here *broker, given options) error {
	count, err := strconv.Atoi(given["count"])
	if err != nil {
		return err
	}
	server, err := here.channel()
	if err != nil {
		return err
	}
	if err := durable(server, "questions", nil); err != nil {
		return err
	}
	questions, err := consume(server, "questions", false)
	if err != nil {
		return err
	}
	failed := make(chan error, 1)
	go func() { failed <- answerAll(server, questions, count) }()
	client, err := here.channel()
	if err != nil {
		return err
	}
	replies, err := consume(client, "amq.rabbitmq.reply-to", true)
	if err != nil {
		return err
	}
	for _, number := range numbered(count) {
		question := amqp.Publishing{Body: []byte(number), ReplyTo: "amq.rabbitmq.reply-to", CorrelationId: number}
		if err := client.Publish("", "questions", false, false, question); err != nil {
			return err
		}
	}
	came, err := take(replies, count, nil)
	if err != nil {
		return err
	}
	answers := make([]string, count)
	for _, answer := range came {
		number, err := strconv.Atoi(answer.CorrelationId)
		if err != nil {
			return err
		}
		answers[number] = string(answer.Body)
	}
	line{"answers": answers}.print()
	return <-failed
}

func answerAll(server *amqp.Channel, questions <-chan amqp.Delivery, count int) error {
	_, err := take(questions, count, func(question amqp.Delivery) error {
		number, err := strconv.Atoi(string(question.Body))
		if err != nil {
			return err
		}
		answer := amqp.Publishing{Body: []byte(strconv.Itoa(number * 7)), CorrelationId: question.CorrelationId}
		return errors.Join(server.Publish("", question.ReplyTo, false, false, answer), question.Ack(false))
	})
	return err
}

func cancelled(here *broker, _ options) error {
	channel, err := here.channel()
	if err != nil {
		return err
	}
	if err := durable(channel, "doomed", nil); err != nil {
		return err
	}
	told := channel.NotifyCancel(make(chan string, 1))
	if _, err := channel.Consume("doomed", "listener", false, false, false, false, nil); err != nil {
		return err
	}
	other, err := here.channel()
	if err != nil {
		return err
	}
	if _, err := other.QueueDelete("doomed", false, false, false); err != nil {
		return err
	}
	if tag := <-told; tag != "listener" {
		return errors.New("another consumer was cancelled: " + tag)
	}
	line{"event": "cancelled"}.print()
	return nil
}
