import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Runs one command of mqadmin for each line of its input, its words apart by tabs, and prints what it said as one line.
 * Meanwhile a consumer of the given group and topic is there to be asked; CLIENT stands for its name.
 */
public class Admin {
    public static void main(String[] arguments) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(arguments[1]);
        consumer.setNamesrvAddr(arguments[0]);
        consumer.setInstanceName("watched");
        consumer.subscribe(arguments[2], "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (found, context) -> ConsumeConcurrentlyStatus.CONSUME_SUCCESS);
        consumer.start();
        PrintStream out = System.out;
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(said(line.replace("CLIENT", consumer.buildMQClientId()).split("\t")));
        }
        out.flush();
        System.exit(0); // its clients leave threads behind
    }

    private static String said(String[] words) {
        ByteArrayOutputStream heard = new ByteArrayOutputStream();
        PrintStream ear = new PrintStream(heard, true, StandardCharsets.UTF_8);
        System.setOut(ear);
        System.setErr(ear);
        try {
            MQAdminStartup.main0(words, null);
        } catch (Throwable error) {
            error.printStackTrace(ear);
        }
        return heard.toString(StandardCharsets.UTF_8).replace("\\", "\\\\").replace("\n", "\\n");
    }
}
