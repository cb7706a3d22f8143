package main

import (
	"bufio"
	"context"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const partitions = 4

var balancers = map[string]func() kgo.GroupBalancer{
	"range": kgo.RangeBalancer, "roundrobin": kgo.RoundRobinBalancer, "sticky": kgo.StickyBalancer,
	"cooperative-sticky": kgo.CooperativeStickyBalancer,
}

// member is one consumer of a group, what it owns and what it has read.
type member struct {
	client *kgo.Client
	lock   sync.Mutex // the client tells from a goroutine of its own what is owned
	owned  map[int32]bool
	read   map[int]bool
}

func newMember(c cluster, group string, given options) (*member, error) {
	m := &member{owned: map[int32]bool{}, read: map[int]bool{}}
	opts := []kgo.Opt{
		kgo.ConsumerGroup(group), kgo.ConsumeTopics(given["topic"]), kgo.Balancers(balancers[given["assignor"]]()),
		kgo.HeartbeatInterval(300 * time.Millisecond),
		kgo.OnPartitionsAssigned(m.given), kgo.OnPartitionsRevoked(m.revoked), kgo.OnPartitionsLost(m.lost),
	}
	if given["protocol"] == "consumer" {
		opts = append(opts, kgo.ServerSideBalancer())
	}
	client, err := c.client(opts...)
	m.client = client
	return m, err
}

func (m *member) given(_ context.Context, _ *kgo.Client, topics map[string][]int32) {
	m.change(topics, true)
}

// revoked commits what was read, so that whoever is next goes on there.
func (m *member) revoked(ctx context.Context, client *kgo.Client, topics map[string][]int32) {
	_ = client.CommitUncommittedOffsets(ctx) // whoever could not commit reads again, and is found out
	m.change(topics, false)
}

func (m *member) lost(_ context.Context, _ *kgo.Client, topics map[string][]int32) {
	m.change(topics, false)
}

func (m *member) change(topics map[string][]int32, isOwned bool) {
	m.lock.Lock()
	defer m.lock.Unlock()
	for _, numbers := range topics {
		for _, number := range numbers {
			if isOwned {
				m.owned[number] = true
			} else {
				delete(m.owned, number)
			}
		}
	}
}

func (m *member) share() []int32 {
	m.lock.Lock()
	defer m.lock.Unlock()
	return sorted(m.owned)
}

func (m *member) poll() {
	for _, record := range poll(m.client) {
		number, _ := strconv.Atoi(string(record.Value))
		m.read[number] = true
	}
}

// twoGroups of two; then one member of the first leaves. `topic`, `assignor` and `protocol` are options.
func twoGroups(c cluster, given options) error {
	topic := given["topic"]
	if err := c.createTopic(topic, partitions, nil); err != nil {
		return err
	}
	if err := c.sendNumbers(topic, 0, 100, partitions); err != nil {
		return err
	}
	var all []*member
	for _, group := range []string{"-one", "-one", "-two", "-two"} {
		m, err := newMember(c, topic+group, given)
		if err != nil {
			return err
		}
		all = append(all, m)
	}
	if err := settle(topic+"-one", all[:2], all, 100); err != nil {
		return err
	}
	if err := settle(topic+"-two", all[2:], all, 100); err != nil {
		return err
	}
	all[0].client.Close()
	all = all[1:]
	if err := settle(topic+"-one", all[:1], all, 0); err != nil {
		return err
	}
	clear(all[0].read)
	if err := c.sendNumbers(topic, 100, 120, partitions); err != nil {
		return err
	}
	err := settle(topic+"-one", all[:1], all, 20)
	for _, m := range all {
		m.client.Close()
	}
	return err
}

// settle lets everybody poll until this group owns everything, nobody too much, and has read so many records.
func settle(name string, group, everybody []*member, toRead int) error {
	shares, read := [][]int32{}, map[int]bool{}
	err := await("a division of "+name, func() bool {
		for _, m := range everybody {
			m.poll()
		}
		shares = shares[:0]
		for _, m := range group {
			shares = append(shares, m.share())
			for number := range m.read {
				read[number] = true
			}
		}
		isEven := !slices.ContainsFunc(shares, func(share []int32) bool { return len(share) != partitions/len(group) })
		return isEven && len(read) >= toRead
	})
	line{"group": name, "shares": shares, "read": sorted(read)}.print()
	return err
}

func sorted[T int | int32](set map[T]bool) []T {
	items := []T{}
	for item := range set {
		items = append(items, item)
	}
	slices.Sort(items)
	return items
}

// resume reads ten, commits, waits for a line (the broker is started anew meanwhile), and reads on with the same
// client.
func resume(c cluster, _ options) error {
	if err := c.sendNumbers("resume", 0, 20, 1); err != nil {
		return err
	}
	client, err := c.client(kgo.ConsumerGroup("resume"), kgo.ConsumeRegex(), kgo.ConsumeTopics("resu.e"),
		kgo.DisableAutoCommit(), kgo.UnknownTopicRetries(20))
	if err != nil {
		return err
	}
	defer client.Close()
	if err := readSome(client, 10); err != nil {
		return err
	}
	if err := client.CommitUncommittedOffsets(context.Background()); err != nil {
		return err
	}
	line{"event": "committed"}.print()
	bufio.NewReader(os.Stdin).ReadString('\n')
	for i := 20; i < 25; i++ {
		record := &kgo.Record{Topic: "resume", Value: []byte(strconv.Itoa(i))}
		if err := client.ProduceSync(context.Background(), record).FirstErr(); err != nil {
			return err
		}
	}
	if err := readSome(client, 15); err != nil {
		return err
	}
	return client.CommitUncommittedOffsets(context.Background())
}

// resumed is a new member that goes on where the group was.
func resumed(c cluster, _ options) error {
	if err := c.sendNumbers("resume", 25, 28, 1); err != nil {
		return err
	}
	client, err := c.client(kgo.ConsumerGroup("resume"), kgo.ConsumeTopics("resume"), kgo.DisableAutoCommit())
	if err != nil {
		return err
	}
	defer client.Close()
	return readSome(client, 3)
}

func readSome(client *kgo.Client, count int) error {
	values := []int{}
	err := await(strconv.Itoa(count)+" records", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), aMoment)
		defer cancel()
		for _, record := range client.PollRecords(ctx, count-len(values)).Records() {
			number, _ := strconv.Atoi(string(record.Value))
			values = append(values, number)
		}
		return len(values) >= count
	})
	line{"read": values}.print()
	return err
}
