package shop;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.spring.annotation.RocketMQMessageListener;
import org.apache.rocketmq.spring.annotation.RocketMQTransactionListener;
import org.apache.rocketmq.spring.core.RocketMQListener;
import org.apache.rocketmq.spring.core.RocketMQLocalTransactionListener;
import org.apache.rocketmq.spring.core.RocketMQLocalTransactionState;
import org.apache.rocketmq.spring.core.RocketMQTemplate;
import org.springframework.boot.CommandLineRunner;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.messaging.Message;
import org.springframework.messaging.support.MessageBuilder;
import org.springframework.stereotype.Component;

/** A shop that sends its orders through a template and takes them in a listener. Some are sent in transactions. Prints a
 * line for each thing that happens, and runs until it is ended. */
@SpringBootApplication
public class Shop implements CommandLineRunner {
    private final RocketMQTemplate template;

    public Shop(RocketMQTemplate template) {
        this.template = template;
    }

    public static void main(String[] words) {
        SpringApplication.run(Shop.class, words);
    }

    /** What travels as JSON. */
    public static class Order {
        public int number;
        public String state;

        public static Order of(int number, String state) {
            Order order = new Order();
            order.number = number;
            order.state = state;
            return order;
        }
    }

    @Override
    public void run(String... words) {
        SendResult sent = template.syncSend("orders:paid", Order.of(1, "sent"));
        say("sent", sent.getSendStatus().name());
        template.convertAndSend("orders:paid", Order.of(2, "converted"));
        template.convertAndSend("orders:dropped", Order.of(3, "of another tag"));
        for (String outcome : new String[] {"rollback", "commit", "unknown"}) {
            Message<Order> message = MessageBuilder.withPayload(Order.of(4, outcome)).setHeader("outcome", outcome).build();
            template.sendMessageInTransaction("orders:paid", message, outcome);
        }
        say("ran", "all");
    }

    @Component
    @RocketMQMessageListener(topic = "orders", consumerGroup = "warehouse", selectorExpression = "paid")
    public static class Warehouse implements RocketMQListener<Order> {
        @Override
        public void onMessage(Order order) {
            say("took", order.number + " " + order.state);
        }
    }

    @RocketMQTransactionListener
    public static class Bookkeeping implements RocketMQLocalTransactionListener {
        private final Map<String, Integer> asked = new ConcurrentHashMap<>();

        @Override
        public RocketMQLocalTransactionState executeLocalTransaction(Message message, Object outcome) {
            return switch ((String) outcome) {
                case "commit" -> RocketMQLocalTransactionState.COMMIT;
                case "rollback" -> RocketMQLocalTransactionState.ROLLBACK;
                default -> RocketMQLocalTransactionState.UNKNOWN;
            };
        }

        @Override
        public RocketMQLocalTransactionState checkLocalTransaction(Message message) {
            String outcome = String.valueOf(message.getHeaders().get("outcome"));
            say("asked", outcome + " " + asked.merge(outcome, 1, Integer::sum));
            return RocketMQLocalTransactionState.COMMIT;
        }
    }

    private static synchronized void say(String what, String text) {
        System.out.println("{\"" + what + "\": \"" + text + "\"}");
        System.out.flush();
    }
}
