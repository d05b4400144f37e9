import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.io.FileReader;
import java.util.Properties;

/** Runs Debezium's embedded engine with a file of properties; one line per event: topic, key, value. */
public class Capture {
    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        try (FileReader reader = new FileReader(arguments[0])) {
            properties.load(reader);
        }
        DebeziumEngine<ChangeEvent<String, String>> engine = DebeziumEngine.create(Json.class)
            .using(properties)
            .notifying(event -> {
                System.out.println(event.destination() + "\t" + event.key() + "\t" + event.value());
                System.out.flush();
            })
            .using((success, message, error) -> {
                if (!success) {
                    System.err.println("ended: " + message);
                }
            })
            .build();
        engine.run();
    }
}
