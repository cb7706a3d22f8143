// Runs one scenario with amqp091-go: `client ADDRESS SCENARIO [name=value ...]`. Prints JSON, a line each; fails with a
// sentence.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

type options map[string]string

var scenarios = map[string]func(*broker, options) error{
	"confirms":     confirms,
	"returns":      returns,
	"prefetch":     prefetch,
	"cut":          cut,
	"dead-letters": deadLetters,
	"rpc":          rpc,
	"bodies":       bodies,
	"headers":      headers,
	"transactions": transactions,
	"mistakes":     mistakes,
	"cancelled":    cancelled,
	"many":         many,
}

func main() {
	if len(os.Args) < 3 || scenarios[os.Args[2]] == nil {
		fmt.Fprintln(os.Stderr, "usage: client ADDRESS SCENARIO [name=value ...]")
		os.Exit(2)
	}
	given := options{}
	for _, word := range os.Args[3:] {
		name, value, _ := strings.Cut(word, "=")
		given[name] = value
	}
	here := &broker{address: os.Args[1]}
	err := scenarios[os.Args[2]](here, given)
	if err == nil {
		err = here.disconnect()
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "scenario %s failed: %v\n", os.Args[2], err)
		os.Exit(1)
	}
}

type line map[string]any

func (l line) print() {
	text, err := json.Marshal(l)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(text))
}
