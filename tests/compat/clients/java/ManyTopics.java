import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.regex.Pattern;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

/** As many topics as `count=` says, from their making to their end. */
final class ManyTopics {
    static void all(Cluster cluster, Map<String, String> options) throws Exception {
        List<String> names = IntStream.range(0, Integer.parseInt(options.get("count")))
                .mapToObj(i -> String.format("many-%04d", i)).toList();
        try (Admin admin = cluster.admin()) {
            List<NewTopic> topics = names.stream().map(name -> new NewTopic(name, 1, (short) 1)).toList();
            Cluster.get(admin.createTopics(topics).all());
            Lines.print("did", "create", "topics", ours(admin).size());
            produce(cluster, names);
            Set<String> read = consume(cluster, names.size());
            Lines.print("did", "consume", "topics", read.size(), "all", read.containsAll(names));
            Cluster.get(admin.deleteTopics(names).all());
            Lines.print("did", "delete", "topics", ours(admin).size());
        }
    }

    private static void produce(Cluster cluster, List<String> names) {
        try (KafkaProducer<String, String> producer = cluster.producer("linger.ms", 50)) {
            names.forEach(name -> producer.send(new ProducerRecord<>(name, name)));
        }
    }

    private static Set<String> consume(Cluster cluster, int count) {
        Set<String> topics = new TreeSet<>();
        List<String> values = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer = cluster.consumer("group.id", "many")) {
            consumer.subscribe(Pattern.compile("many-.*"));
            Cluster.await("a record of each topic", () -> {
                consumer.poll(Cluster.A_MOMENT).forEach(record -> {
                    topics.add(record.topic());
                    values.add(record.value());
                });
                return values.size() >= count;
            });
            consumer.commitSync();
        }
        return topics;
    }

    private static List<String> ours(Admin admin) throws Exception {
        return Cluster.get(admin.listTopics().names()).stream().filter(name -> name.startsWith("many-")).toList();
    }

    private ManyTopics() {}
}
