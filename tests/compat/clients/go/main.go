// Runs one scenario with franz-go: `client BOOTSTRAP SCENARIO [name=value ...]`. Prints JSON, a line each; fails with
// a sentence.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
)

type options map[string]string

var scenarios = map[string]func(cluster, options) error{
	"codecs":       everyCodec,
	"idempotent":   idempotent,
	"large":        large,
	"transactions": bothWays,
	"offsets":      offsets,
	"fenced":       fenced,
	"groups":       twoGroups,
	"resume":       resume,
	"resumed":      resumed,
	"times":        times,
	"many":         manyTopics,
	"admin":        administration,
}

func main() {
	if len(os.Args) < 3 || scenarios[os.Args[2]] == nil {
		fmt.Fprintln(os.Stderr, "usage: client BOOTSTRAP SCENARIO [name=value ...]")
		os.Exit(2)
	}
	given := options{}
	for _, word := range os.Args[3:] {
		name, value, _ := strings.Cut(word, "=")
		given[name] = value
	}
	if err := scenarios[os.Args[2]](cluster{os.Args[1]}, given); err != nil {
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

// refusal is the name of the broker's error, "none" where there is none.
func refusal(err error) string {
	var known *kerr.Error
	switch {
	case err == nil:
		return "none"
	case errors.As(err, &known):
		return known.Message
	default:
		return err.Error()
	}
}
