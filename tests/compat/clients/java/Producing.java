import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;

/** What producers can ask for: codecs, acknowledgements, idempotence, large records. */
final class Producing {
    /** Each codec with each kind of acknowledgement, into a topic of its own that nobody made before. */
    static void everyCodec(Cluster cluster, Map<String, String> options) throws Exception {
        for (String codec : options.get("codecs").split(",")) {
            for (String acks : options.get("acks").split(",")) {
                String topic = "codecs-" + codec + "-" + acks;
                try (KafkaProducer<String, String> producer = cluster.producer(
                        "compression.type", codec, "acks", acks, "enable.idempotence", false, "linger.ms", 20)) {
                    List<Future<RecordMetadata>> sent = new ArrayList<>();
                    for (int i = 0; i < 20; i++) {
                        ProducerRecord<String, String> record = new ProducerRecord<>(
                                topic, 0, "key-" + i, codec + " " + acks + " " + i + " " + "x".repeat(200));
                        record.headers().add("number", String.valueOf(i).getBytes());
                        sent.add(producer.send(record));
                    }
                    List<Long> offsets = new ArrayList<>();
                    for (Future<RecordMetadata> each : sent) {
                        offsets.add(Cluster.get(each).offset());
                    }
                    Lines.print("topic", topic, "offsets", offsets);
                }
                List<Object> read = new ArrayList<>();
                for (ConsumerRecord<String, String> record : cluster.readAll(topic, "read_uncommitted")) {
                    String header = new String(record.headers().lastHeader("number").value());
                    read.add(List.of(record.offset(), record.key(), record.value(), header));
                }
                Lines.print("topic", topic, "read", read);
            }
        }
    }

    /** Many small batches, five on their way at a time. */
    static void idempotent(Cluster cluster, Map<String, String> options) throws Exception {
        try (KafkaProducer<String, String> producer = cluster.producer(
                "enable.idempotence", true, "batch.size", 100, "max.in.flight.requests.per.connection", 5)) {
            for (int i = 0; i < 500; i++) {
                producer.send(new ProducerRecord<>("idempotent", 0, null, String.valueOf(i)));
            }
            producer.flush();
        }
        Lines.print("read", cluster.readValues("idempotent", "read_uncommitted"));
    }

    /** As large as a topic takes by default, as large as another is set to take, and more than a topic takes. */
    static void large(Cluster cluster, Map<String, String> options) throws Exception {
        cluster.createTopic("large-set", 1, Map.of("max.message.bytes", "8000000"));
        cluster.createTopic("large-default", 1, Map.of());
        try (KafkaProducer<String, String> producer =
                cluster.producer("max.request.size", 10_000_000, "buffer.memory", 40_000_000L)) {
            send(producer, "large-default", 1_000_000);
            send(producer, "large-set", 5_000_000);
            send(producer, "large-set", 7_900_000);
            for (String topic : List.of("large-default", "large-set")) {
                Future<RecordMetadata> tooMuch = producer.send(new ProducerRecord<>(topic, body(8_100_000)));
                Lines.print("topic", topic, "refused", Cluster.refusal(tooMuch));
            }
        }
        for (String topic : List.of("large-default", "large-set")) {
            List<String> read = cluster.readValues(topic, "read_uncommitted");
            Lines.print("topic", topic, "sizes", read.stream().map(String::length).toList(),
                    "intact", read.stream().allMatch(value -> value.equals(body(value.length()))));
        }
    }

    private static void send(KafkaProducer<String, String> producer, String topic, int size) throws Exception {
        Cluster.get(producer.send(new ProducerRecord<>(topic, body(size))));
    }

    private static String body(int size) {
        return "0123456789abcdefghi".repeat(size / 19 + 1).substring(0, size);
    }

    private Producing() {}
}
