package shop;

import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.spring.core.RocketMQTemplate;
import org.springframework.boot.CommandLineRunner;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.messaging.support.MessageBuilder;

/** Sends orders in each way of the template, and waits until the warehouse has taken those that are paid. */
@SpringBootApplication
public class Shop implements CommandLineRunner {
    private static final String PAID = "e27-orders:paid";
    private static final int PATIENCE_S = 30;

    private final RocketMQTemplate template;
    private final Warehouse warehouse;

    public Shop(RocketMQTemplate template, Warehouse warehouse) {
        this.template = template;
        this.warehouse = warehouse;
    }

    public static void main(String[] words) {
        System.exit(SpringApplication.exit(SpringApplication.run(Shop.class, words)));
    }

    @Override
    public void run(String... words) throws Exception {
        System.out.println("send and wait:      " + template.syncSend(PAID, new Order(1, "waited")).getSendStatus());
        System.out.println("send with callback: " + sendWithCallback(new Order(2, "called back")).getSendStatus());
        template.sendOneWay(PAID, new Order(3, "one way"));
        template.syncSend("e27-orders:dropped", new Order(4, "another tag"));
        for (boolean isCovered : new boolean[] {true, false}) {
            Order order = new Order(5, isCovered ? "committed" : "rolled back");
            template.sendMessageInTransaction(PAID, MessageBuilder.withPayload(order).build(), isCovered);
        }

        Set<String> taken = new TreeSet<>();
        Set<String> expected = Set.of("1 waited", "2 called back", "3 one way", "5 committed");
        while (taken.size() < expected.size()) {
            Order order = warehouse.taken.poll(PATIENCE_S, TimeUnit.SECONDS);
            if (order == null) {
                break;
            }
            taken.add(order.number() + " " + order.state());
        }
        System.out.println("the warehouse took: " + taken);
        if (!taken.equals(expected)) {
            throw new IllegalStateException("the warehouse took " + taken + ", not " + expected);
        }
    }

    private SendResult sendWithCallback(Order order) throws Exception {
        CompletableFuture<SendResult> answer = new CompletableFuture<>();
        template.asyncSend(PAID, order, new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                answer.complete(result);
            }

            @Override
            public void onException(Throwable error) {
                answer.completeExceptionally(error);
            }
        });
        return answer.get(PATIENCE_S, TimeUnit.SECONDS);
    }
}
