// Many queues with a message each.
package main

import "strconv"

func many(here *broker, given options) error {
	count, err := strconv.Atoi(given["count"])
	if err != nil {
		return err
	}
	channel, err := here.channel()
	if err != nil {
		return err
	}
	names := numbered(count)
	for i, number := range names {
		names[i] = "many." + number
		if err := durable(channel, names[i], nil); err != nil {
			return err
		}
	}
	line{"did": "declare", "queues": len(names)}.print()
	read, left := 0, 0
	for _, name := range names {
		if _, err := publishAll(channel, name, publishings(name)); err != nil {
			return err
		}
	}
	for _, name := range names {
		message, found, err := channel.Get(name, true)
		if err != nil {
			return err
		}
		if found && string(message.Body) == name {
			read++
		}
	}
	line{"did": "read", "queues": read}.print()
	for _, name := range names {
		purged, err := channel.QueueDelete(name, false, false, false)
		if err != nil {
			return err
		}
		left += purged
	}
	line{"did": "delete", "left": left}.print()
	return nil
}
