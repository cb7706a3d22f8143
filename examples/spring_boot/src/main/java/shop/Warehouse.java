package shop;

import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import org.apache.rocketmq.spring.annotation.RocketMQMessageListener;
import org.apache.rocketmq.spring.core.RocketMQListener;
import org.springframework.stereotype.Component;

/** Push consumer: the orders with the tag "paid". */
@Component
@RocketMQMessageListener(topic = "e27-orders", consumerGroup = "warehouse", selectorExpression = "paid")
public class Warehouse implements RocketMQListener<Order> {
    final BlockingQueue<Order> taken = new LinkedBlockingQueue<>();

    @Override
    public void onMessage(Order order) {
        taken.add(order);
    }
}
