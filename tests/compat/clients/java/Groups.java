import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/** Consumers in groups: how they divide partitions, and where they go on. */
final class Groups {
    private static final int PARTITIONS = 4;

    /** One consumer of a group, and what it has read. */
    private static final class Member {
        final KafkaConsumer<String, String> consumer;
        final Set<String> read = new TreeSet<>();

        Member(KafkaConsumer<String, String> consumer, String topic) {
            this.consumer = consumer;
            consumer.subscribe(List.of(topic));
        }

        void poll() {
            for (ConsumerRecord<String, String> record : consumer.poll(Cluster.A_MOMENT)) {
                read.add(record.value());
            }
        }

        List<Integer> share() {
            return consumer.assignment().stream().map(TopicPartition::partition).sorted().toList();
        }
    }

    /** Two groups of two; then one member of the first leaves. `topic=` and the consumers' settings are options.
     * What is read is committed by itself before partitions are given away. */
    static void twoGroups(Cluster cluster, Map<String, String> options) throws Exception {
        Map<String, String> settings = new HashMap<>(options);
        String topic = settings.remove("topic");
        cluster.createTopic(topic, PARTITIONS, Map.of());
        cluster.sendNumbers(topic, 0, 100, PARTITIONS);
        List<Member> one = members(cluster, topic + "-one", topic, settings);
        List<Member> two = members(cluster, topic + "-two", topic, settings);
        settle(topic + "-one", one, List.of(one, two), 100);
        settle(topic + "-two", two, List.of(one, two), 100);
        one.remove(1).consumer.close();
        settle(topic + "-one", one, List.of(one, two), 0);
        one.get(0).read.clear();
        cluster.sendNumbers(topic, 100, 120, PARTITIONS);
        settle(topic + "-one", one, List.of(one, two), 20);
        one.get(0).consumer.close();
        two.forEach(member -> member.consumer.close());
    }

    private static List<Member> members(Cluster cluster, String group, String topic, Map<String, String> settings) {
        List<Member> members = new ArrayList<>();
        for (int i = 0; i < 2; i++) {
            List<Object> pairs = new ArrayList<>(List.of("group.id", group, "enable.auto.commit", true));
            settings.forEach((name, value) -> pairs.addAll(List.of(name, value)));
            members.add(new Member(cluster.consumer(pairs.toArray()), topic));
        }
        return members;
    }

    /** Everybody polls until this group owns everything, nobody too much, and has read so many records. */
    private static void settle(String name, List<Member> group, List<List<Member>> groups, int toRead) {
        Cluster.await("a division of " + name, () -> {
            groups.forEach(members -> members.forEach(Member::poll));
            int owned = group.stream().mapToInt(member -> member.share().size()).sum();
            boolean isEven = group.stream().allMatch(member -> member.share().size() == PARTITIONS / group.size());
            return owned == PARTITIONS && isEven && readBy(group).size() >= toRead;
        });
        Lines.print("group", name, "shares", group.stream().map(Member::share).toList(),
                "read", readBy(group).stream().map(Integer::valueOf).sorted().toList());
    }

    private static Set<String> readBy(List<Member> group) {
        Set<String> all = new TreeSet<>();
        group.forEach(member -> all.addAll(member.read));
        return all;
    }

    /** Reads ten, commits, waits for a line (the broker is started anew meanwhile), and reads on with the same clients. */
    static void resume(Cluster cluster, Map<String, String> options) throws Exception {
        cluster.createTopic("resume", 1, Map.of());
        cluster.sendNumbers("resume", 0, 20, 1);
        try (KafkaProducer<String, String> producer = cluster.producer();
                KafkaConsumer<String, String> consumer =
                        cluster.consumer("group.id", "resume", "max.poll.records", 10)) {
            producer.partitionsFor("resume");
            consumer.subscribe(Pattern.compile("resu.e"));
            Lines.print("read", readSome(consumer, 10));
            consumer.commitSync();
            Lines.print("event", "committed");
            new BufferedReader(new InputStreamReader(System.in)).readLine();
            for (int i = 20; i < 25; i++) {
                Cluster.get(producer.send(new ProducerRecord<>("resume", 0, null, String.valueOf(i))));
            }
            Lines.print("read", readSome(consumer, 15));
            consumer.commitSync();
        }
    }

    /** A new member goes on where the group was. */
    static void resumed(Cluster cluster, Map<String, String> options) throws Exception {
        cluster.sendNumbers("resume", 25, 28, 1);
        try (KafkaConsumer<String, String> consumer = cluster.consumer("group.id", "resume")) {
            consumer.subscribe(List.of("resume"));
            Lines.print("read", readSome(consumer, 3));
        }
    }

    /** What was read and not committed may come again, when the group is divided anew in between. */
    private static List<Integer> readSome(KafkaConsumer<String, String> consumer, int count) {
        List<Integer> values = new ArrayList<>();
        Cluster.await(count + " records", () -> {
            consumer.poll(Cluster.A_MOMENT).forEach(record -> values.add(Integer.valueOf(record.value())));
            return values.stream().distinct().count() >= count;
        });
        return values;
    }

    private Groups() {}
}
