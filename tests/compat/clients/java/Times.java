import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/** Positions by time. */
final class Times {
    /** Ten records a second apart from `start=` on; asks for `asked=` (some times) and reads from there. */
    static void seek(Cluster cluster, Map<String, String> options) throws Exception {
        long start = Long.parseLong(options.get("start"));
        TopicPartition partition = new TopicPartition("times", 0);
        try (KafkaProducer<String, String> producer = cluster.producer("compression.type", "lz4", "linger.ms", 5)) {
            for (int i = 0; i < 10; i++) {
                producer.send(new ProducerRecord<>("times", 0, start + i * 1000, null, String.valueOf(i)));
            }
        }
        try (KafkaConsumer<String, String> consumer = cluster.consumer()) {
            consumer.assign(List.of(partition));
            for (String asked : options.get("asked").split(",")) {
                OffsetAndTimestamp found =
                        consumer.offsetsForTimes(Map.of(partition, Long.valueOf(asked))).get(partition);
                if (found == null) {
                    Lines.print("asked", Long.valueOf(asked), "offset", null);
                    continue;
                }
                consumer.seek(partition, found.offset());
                List<ConsumerRecord<String, String>> read = new ArrayList<>();
                Cluster.await("a record", () -> {
                    consumer.poll(Cluster.A_MOMENT).forEach(read::add);
                    return !read.isEmpty();
                });
                Lines.print("asked", Long.valueOf(asked), "offset", found.offset(), "value", read.get(0).value(),
                        "timestamp", read.get(0).timestamp());
            }
        }
    }

    private Times() {}
}
