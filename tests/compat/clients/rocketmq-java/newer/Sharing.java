import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.IntStream;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Several consumers of one topic. */
final class Sharing {
    private static final int QUEUES = 8;
    private static final int EACH = 60;

    /** The same name of a topic and of a group in two namespaces. */
    static void namespaces(Servers servers, Lines lines) throws Exception {
        Map<String, List<String>> taken = new TreeMap<>();
        List<DefaultMQPushConsumer> consumers = new ArrayList<>();
        for (String space : List.of("INST_one", "INST_two")) {
            DefaultMQProducer producer = new DefaultMQProducer("namespaces");
            producer.setNamespace(space);
            servers.started(producer).send(Servers.message("spaced", "tag", "k", space));
            producer.shutdown();
            DefaultMQPushConsumer consumer = servers.pointed(new DefaultMQPushConsumer("namespaces"));
            consumer.setNamespace(space);
            consumer.subscribe("spaced", "*");
            taken.put(space, new CopyOnWriteArrayList<>());
            consumer.setMessageListener((MessageListenerConcurrently) (messages, context) -> {
                messages.forEach(each -> taken.get(space).add(each.getTopic() + " " + Servers.text(each)));
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            consumer.start();
            consumers.add(consumer);
        }
        Servers.await("both messages", () -> taken.values().stream().allMatch(own -> own.size() >= 1));
        lines.print("taken", taken);
        consumers.forEach(DefaultMQPushConsumer::shutdown);
    }

    /** What one queue's messages went through, whoever took them. */
    private static final class Course {
        private final AtomicInteger busy = new AtomicInteger();
        private int next;
        int repeats;
        String complaint;

        /** A number that was seen already may come again; one that is not the next is out of order. */
        void take(int number) {
            if (busy.incrementAndGet() > 1) {
                complaint = "two at the same time at " + number;
            }
            if (number > next) {
                complaint = "came " + number + " before " + next;
            } else if (number < next) {
                repeats++;
            } else {
                next++;
            }
            Thread.yield();
            busy.decrementAndGet();
        }
    }

    /** Messages are sent all the while; three members come, two of them go. */
    static void membersComeAndGo(Servers servers, Lines lines) throws Exception {
        DefaultMQProducer producer = servers.producer("members");
        producer.createTopic("TBW102", "members", QUEUES, null);
        List<Course> courses = IntStream.range(0, QUEUES).mapToObj(i -> new Course()).toList();
        List<DefaultMQPushConsumer> members = new ArrayList<>();
        List<MessageQueue> queues = new ArrayList<>();
        Servers.await("the topic", () -> {
            queues.clear();
            queues.addAll(producer.fetchPublishMessageQueues("members"));
            return queues.size() == QUEUES;
        });
        Map<Integer, Integer> most = new ConcurrentHashMap<>();
        for (int number = 0; number < EACH; number++) {
            for (MessageQueue queue : queues) {
                producer.send(Servers.message("members", "tag", "k", number), queue);
            }
            switch (number) {
                case 5, 15, 25 -> members.add(inOrder(servers, courses));
                case 35 -> {
                    Servers.await("a share for each of three",
                            () -> members.stream().allMatch(each -> Pushing.shares(each, "members") <= 3));
                    members.remove(1).shutdown();
                }
                case 45 -> members.remove(0).shutdown();
                default -> { }
            }
            most.put(members.size(), number);
        }
        Servers.await("all messages", () -> courses.stream().allMatch(course -> course.next == EACH));
        lines.print("complaints", courses.stream().map(course -> course.complaint).filter(each -> each != null).toList(),
                "repeats", courses.stream().mapToInt(course -> course.repeats).sum(), "sizes", most.keySet(),
                "last", Pushing.shares(members.get(0), "members"));
        members.get(0).shutdown();
        producer.shutdown();
    }

    private static DefaultMQPushConsumer inOrder(Servers servers, List<Course> courses) throws Exception {
        DefaultMQPushConsumer consumer = servers.pushed("members", "members", "*");
        consumer.setMessageListener((MessageListenerOrderly) (messages, context) -> {
            for (MessageExt message : messages) {
                courses.get(message.getQueueId()).take(Integer.parseInt(Servers.text(message)));
            }
            return ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
        return consumer;
    }

    /** As many topics as `count=` says, all of one consumer. */
    static void manyTopics(Servers servers, Lines lines) throws Exception {
        int count = Integer.parseInt(servers.option("count"));
        DefaultMQProducer producer = servers.producer("many");
        List<String> taken = new CopyOnWriteArrayList<>();
        DefaultMQPushConsumer consumer = servers.pointed(new DefaultMQPushConsumer("many"));
        consumer.setHeartbeatBrokerInterval(5000);
        consumer.setPollNameServerInterval(30_000);
        for (int i = 0; i < count; i++) {
            producer.createTopic("TBW102", "many-" + i, 1, null);
            consumer.subscribe("many-" + i, "*");
        }
        for (int i = 0; i < count; i++) {
            producer.send(Servers.message("many-" + i, "tag", "k", i));
        }
        Pushing.take(consumer, taken);
        consumer.start();
        Servers.await("a message of each topic", () -> taken.size() >= count);
        lines.print("topics", Pushing.numbers(taken).size());
        consumer.shutdown();
        producer.shutdown();
    }

    /** Takes ten at a time, is done with three of the second ten, and never comes to the fourth: the test ends it. */
    static void stuck(Servers servers, Lines lines) throws Exception {
        DefaultMQProducer producer = servers.producer("stuck");
        producer.createTopic("TBW102", "stuck", 1, null);
        MessageQueue queue = new MessageQueue("stuck", "broker-trimq", 0);
        Servers.await("the topic", () -> producer.fetchPublishMessageQueues("stuck").contains(queue));
        for (int i = 0; i < 40; i++) {
            producer.send(Servers.message("stuck", "tag", "k", i));
        }
        DefaultMQPushConsumer consumer = servers.pushed("stuck", "stuck", "*");
        consumer.setConsumeMessageBatchMaxSize(10);
        consumer.setConsumeThreadMin(1);
        consumer.setConsumeThreadMax(1);
        List<String> done = new ArrayList<>();
        consumer.setMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                if (done.size() == 13) {
                    lines.print("done", done);
                    new CopyOnWriteArrayList<>(done).forEach(each -> hang());
                }
                done.add(Servers.text(message));
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        hang();
    }

    private static void hang() {
        try {
            Thread.sleep(600_000);
        } catch (InterruptedException ended) {
            Thread.currentThread().interrupt();
        }
    }

    /** What the group of `stuck` had not acknowledged, until the last message. */
    static void rest(Servers servers, Lines lines) throws Exception {
        List<String> taken = new CopyOnWriteArrayList<>();
        DefaultMQPushConsumer consumer = Pushing.taking(servers, "stuck", "stuck", "*", taken);
        Servers.await("the last message", () -> taken.contains("39"));
        Servers.await("those before it", () -> Pushing.numbers(taken).size() >= 27);
        lines.print("taken", Pushing.numbers(taken));
        consumer.shutdown();
    }

    private Sharing() {}
}
