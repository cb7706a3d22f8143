// Dead letters, and mistakes.
package main

import (
	"errors"
	"fmt"
	"slices"

	amqp "github.com/rabbitmq/amqp091-go"
)

func deadLetters(here *broker, _ options) error {
	channel, err := here.channel()
	if err != nil {
		return err
	}
	to := func(key string, ttl int) amqp.Table {
		arguments := amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": key}
		if ttl > 0 {
			arguments["x-message-ttl"] = ttl
		}
		return arguments
	}
	if err := errors.Join(durable(channel, "work", to("retry", 0)), durable(channel, "retry", to("work", 50))); err != nil {
		return err
	}
	if _, err := publishAll(channel, "work", publishings("hard")); err != nil {
		return err
	}
	deliveries, err := consume(channel, "work", false)
	if err != nil {
		return err
	}
	attempt := 0
	_, err = take(deliveries, 3, func(message amqp.Delivery) error {
		attempt++
		line{"try": attempt, "deaths": deaths(message)}.print()
		if attempt < 3 {
			return message.Reject(false)
		}
		return message.Ack(false)
	})
	return err
}

func deaths(message amqp.Delivery) [][]any {
	found := [][]any{}
	entries, _ := message.Headers["x-death"].([]any)
	for _, entry := range entries {
		table := entry.(amqp.Table)
		found = append(found, []any{table["queue"], table["reason"], table["count"]})
	}
	slices.SortFunc(found, func(a, b []any) int {
		if fmt.Sprint(a...) < fmt.Sprint(b...) {
			return -1
		}
		return 1
	})
	return found
}

func mistakes(here *broker, _ options) error {
	connection, err := here.connect()
	if err != nil {
		return err
	}
	first, err := connection.Channel()
	if err != nil {
		return err
	}
	if err := durable(first, "mistaken", nil); err != nil {
		return err
	}
	attempts := []struct {
		did string
		act func(*amqp.Channel) error
	}{
		{"declare passively", func(channel *amqp.Channel) error {
			_, err := channel.QueueDeclarePassive("missing", true, false, false, false, nil)
			return err
		}},
		{"declare otherwise", func(channel *amqp.Channel) error {
			_, err := channel.QueueDeclare("mistaken", false, false, false, false, nil)
			return err
		}},
		{"publish to no exchange", func(channel *amqp.Channel) error {
			closed := channel.NotifyClose(make(chan *amqp.Error, 1))
			if err := channel.Publish("missing", "", false, false, amqp.Publishing{}); err != nil {
				return err
			}
			return <-closed
		}},
		{"declare", func(channel *amqp.Channel) error { return durable(channel, "mistaken", nil) }},
	}
	for _, attempt := range attempts {
		channel, err := connection.Channel()
		if err != nil {
			return err
		}
		code := 0
		if err := attempt.act(channel); err != nil {
			var refusal *amqp.Error
			if !errors.As(err, &refusal) {
				return err
			}
			code = refusal.Code
		}
		line{"did": attempt.did, "code": code}.print()
	}
	return nil
}
