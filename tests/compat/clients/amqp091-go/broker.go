// What the scenarios share: connections, queues, publishing and taking.
package main

import (
	"context"
	"errors"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

const patience = 60 * time.Second

type broker struct {
	address     string
	connections []*amqp.Connection
}

func (b *broker) connect() (*amqp.Connection, error) {
	connection, err := amqp.Dial("amqp://guest:guest@" + b.address + "/")
	if err == nil {
		b.connections = append(b.connections, connection)
	}
	return connection, err
}

// channel is one of a connection of its own, which confirms what is published.
func (b *broker) channel() (*amqp.Channel, error) {
	connection, err := b.connect()
	if err != nil {
		return nil, err
	}
	channel, err := connection.Channel()
	if err != nil {
		return nil, err
	}
	return channel, channel.Confirm(false)
}

func (b *broker) disconnect() error {
	for _, connection := range b.connections {
		if err := connection.Close(); err != nil && !errors.Is(err, amqp.ErrClosed) {
			return err
		}
	}
	return nil
}

func durable(channel *amqp.Channel, name string, arguments amqp.Table) error {
	_, err := channel.QueueDeclare(name, true, false, false, false, arguments)
	return err
}

// own declares a queue that the broker names and that goes with its connection.
func own(channel *amqp.Channel, arguments amqp.Table) (string, error) {
	queue, err := channel.QueueDeclare("", false, false, true, false, arguments)
	return queue.Name, err
}

func ready(channel *amqp.Channel, queue string) (int, error) {
	found, err := channel.QueueDeclarePassive(queue, false, false, false, false, nil)
	return found.Messages, err
}

// publishAll does not wait in between, and counts the answers.
func publishAll(channel *amqp.Channel, queue string, sent []amqp.Publishing) (line, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	answers := make([]*amqp.DeferredConfirmation, 0, len(sent))
	for _, message := range sent {
		message.DeliveryMode = amqp.Persistent
		answer, err := channel.PublishWithDeferredConfirm("", queue, true, false, message)
		if err != nil {
			return nil, err
		}
		answers = append(answers, answer)
	}
	confirmed, refused := 0, 0
	for _, answer := range answers {
		acknowledged, err := answer.WaitContext(ctx)
		if err != nil {
			return nil, err
		}
		if acknowledged {
			confirmed++
		} else {
			refused++
		}
	}
	return line{"confirmed": confirmed, "refused": refused}, nil
}

// next is what comes from a consumer, as long as somebody has the patience.
func next(deliveries <-chan amqp.Delivery) (amqp.Delivery, error) {
	select {
	case delivery, open := <-deliveries:
		if !open {
			return delivery, errors.New("the consumer has ended")
		}
		return delivery, nil
	case <-time.After(patience):
		return amqp.Delivery{}, errors.New("nothing came")
	}
}

func take(deliveries <-chan amqp.Delivery, count int, each func(amqp.Delivery) error) ([]amqp.Delivery, error) {
	came := make([]amqp.Delivery, 0, count)
	for len(came) < count {
		delivery, err := next(deliveries)
		if err != nil {
			return came, err
		}
		came = append(came, delivery)
		if each != nil {
			if err := each(delivery); err != nil {
				return came, err
			}
		}
	}
	return came, nil
}

func acknowledge(delivery amqp.Delivery) error { return delivery.Ack(false) }

func consume(channel *amqp.Channel, queue string, autoAck bool) (<-chan amqp.Delivery, error) {
	return channel.Consume(queue, "", autoAck, false, false, false, nil)
}

func texts(messages []amqp.Delivery) []string {
	found := make([]string, 0, len(messages))
	for _, message := range messages {
		found = append(found, string(message.Body))
	}
	return found
}

func publishings(bodies ...string) []amqp.Publishing {
	found := make([]amqp.Publishing, 0, len(bodies))
	for _, body := range bodies {
		found = append(found, amqp.Publishing{Body: []byte(body)})
	}
	return found
}

func numbered(count int) []string {
	found := make([]string, 0, count)
	for number := range count {
		found = append(found, strconv.Itoa(number))
	}
	return found
}
