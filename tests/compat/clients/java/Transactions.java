import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;

/** Transactions that are committed, aborted and taken over. */
final class Transactions {
    /** Two records in each of ten transactions, over two partitions; every third is aborted. */
    static void bothWays(Cluster cluster, Map<String, String> options) throws Exception {
        cluster.createTopic("transactions", 2, Map.of());
        try (KafkaProducer<String, String> producer = cluster.producer("transactional.id", "both-ways")) {
            producer.initTransactions();
            for (int i = 0; i < 10; i++) {
                producer.beginTransaction();
                producer.send(new ProducerRecord<>("transactions", 0, null, i + " a"));
                producer.send(new ProducerRecord<>("transactions", 1, null, i + " elsewhere"));
                producer.send(new ProducerRecord<>("transactions", 0, null, i + " b"));
                if (i % 3 == 0) {
                    producer.flush();
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
            }
        }
        for (String isolation : List.of("read_committed", "read_uncommitted")) {
            Lines.print("isolation", isolation, "read", cluster.readValues("transactions", isolation));
        }
    }

    /** Offsets of a group are committed with a transaction, or not at all. */
    static void offsets(Cluster cluster, Map<String, String> options) throws Exception {
        TopicPartition partition = new TopicPartition("offsets", 0);
        cluster.createTopic("offsets", 1, Map.of());
        try (KafkaProducer<String, String> producer = cluster.producer("transactional.id", "offsets");
                KafkaConsumer<String, String> consumer = cluster.consumer("group.id", "offsets")) {
            producer.initTransactions();
            for (String outcome : List.of("aborted", "committed")) {
                producer.beginTransaction();
                producer.send(new ProducerRecord<>("offsets", "moved"));
                producer.sendOffsetsToTransaction(
                        Map.of(partition, new OffsetAndMetadata(7)), new ConsumerGroupMetadata("offsets"));
                if (outcome.equals("aborted")) {
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
                OffsetAndMetadata found = consumer.committed(Set.of(partition)).get(partition);
                Lines.print("outcome", outcome, "committed", found == null ? null : found.offset());
            }
        }
    }

    /** A second producer of the same name takes over; the first can no longer commit. */
    static void fenced(Cluster cluster, Map<String, String> options) throws Exception {
        try (KafkaProducer<String, String> old = cluster.producer("transactional.id", "fenced");
                KafkaProducer<String, String> taker = cluster.producer("transactional.id", "fenced")) {
            old.initTransactions();
            old.beginTransaction();
            Cluster.get(old.send(new ProducerRecord<>("fenced", 0, null, "lost")));
            taker.initTransactions();
            try {
                old.commitTransaction();
                Lines.print("refused", "none");
            } catch (KafkaException failure) {
                Lines.print("refused", failure.getClass().getSimpleName());
            }
            taker.beginTransaction();
            taker.send(new ProducerRecord<>("fenced", 0, null, "kept"));
            taker.commitTransaction();
        }
        Lines.print("read", cluster.readValues("fenced", "read_committed"));
    }

    private Transactions() {}
}
