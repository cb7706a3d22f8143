import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Makes clients of one broker, and does with them what most scenarios need. */
final class Cluster {
    static final int PATIENCE_S = 30;
    static final Duration A_MOMENT = Duration.ofMillis(50);
    /** Written after everything else; whoever reads it has read all. */
    static final String END = "end";

    private final String bootstrap;

    Cluster(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    KafkaProducer<String, String> producer(Object... settings) {
        return new KafkaProducer<>(with(settings), new StringSerializer(), new StringSerializer());
    }

    KafkaConsumer<String, String> consumer(Object... settings) {
        Map<String, Object> all = with("auto.offset.reset", "earliest", "enable.auto.commit", false);
        all.putAll(Lines.object(settings));
        return new KafkaConsumer<>(all, new StringDeserializer(), new StringDeserializer());
    }

    Admin admin() {
        return Admin.create(with());
    }

    void createTopic(String name, int partitions, Map<String, String> settings) throws Exception {
        try (Admin admin = admin()) {
            NewTopic topic = new NewTopic(name, partitions, (short) 1).configs(settings);
            get(admin.createTopics(List.of(topic)).all());
        }
    }

    /** The numbers as texts, one in each partition after the other. */
    void sendNumbers(String topic, int from, int to, int partitions) throws Exception {
        try (KafkaProducer<String, String> producer = producer()) {
            List<Future<?>> sent = new ArrayList<>();
            for (int i = from; i < to; i++) {
                sent.add(producer.send(new ProducerRecord<>(topic, i % partitions, null, String.valueOf(i))));
            }
            for (Future<?> each : sent) {
                get(each);
            }
        }
    }

    /** All records of partition 0 before the one that says END, which this writes. */
    List<ConsumerRecord<String, String>> readAll(String topic, String isolation) throws Exception {
        try (KafkaProducer<String, String> producer = producer()) {
            get(producer.send(new ProducerRecord<>(topic, 0, null, END)));
        }
        List<ConsumerRecord<String, String>> found = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer = consumer("isolation.level", isolation)) {
            TopicPartition partition = new TopicPartition(topic, 0);
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            boolean[] atEnd = {false};
            await("the end of " + topic, () -> {
                for (ConsumerRecord<String, String> record : consumer.poll(A_MOMENT)) {
                    if (record.value().equals(END)) {
                        atEnd[0] = record.offset() + 1 >= consumer.endOffsets(List.of(partition)).get(partition);
                    } else {
                        found.add(record);
                    }
                }
                return atEnd[0];
            });
        }
        return found;
    }

    List<String> readValues(String topic, String isolation) throws Exception {
        return readAll(topic, isolation).stream().map(ConsumerRecord::value).toList();
    }

    static void await(String what, BooleanSupplier isSo) {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_S);
        while (!isSo.getAsBoolean()) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("waited " + PATIENCE_S + " s for " + what);
            }
        }
    }

    static <T> T get(Future<T> pending) throws Exception {
        return pending.get(PATIENCE_S, TimeUnit.SECONDS);
    }

    /** The name of the error that this must end with. */
    static String refusal(Future<?> pending) throws Exception {
        try {
            get(pending);
        } catch (ExecutionException failure) {
            return failure.getCause().getClass().getSimpleName();
        }
        return "none";
    }

    private Map<String, Object> with(Object... settings) {
        Map<String, Object> all = new HashMap<>(Lines.object(settings));
        all.put("bootstrap.servers", bootstrap);
        return all;
    }
}
