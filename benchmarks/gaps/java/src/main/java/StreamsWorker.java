import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.TaskMetadata;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/**
 * The Faust workers' work in Kafka Streams: orders joined with customers, totals in a store with a changelog.
 *
 * <p>Told by the same environment ({@code FLEET_*}), it writes the same journal: a line when an order is done,
 * and one when the tasks it has are others than before. With the argument {@code configure} it sets what this
 * protocol keeps at the broker, for the group, and ends.
 */
public final class StreamsWorker {
    private static final String APP = env("APP_ID");
    private static final Pattern ORDER = Pattern.compile("\"number\": (\\d+), \"amount\": (\\d+)");
    private static final Pattern TOTAL = Pattern.compile("\"amount\": (\\d+), \"numbers\": (\\d+)");

    private static FileOutputStream journal;

    private StreamsWorker() { }

    public static void main(String[] arguments) throws Exception {
        if (arguments.length > 0 && arguments[0].equals("configure")) {
            configure();
            return;
        }
        journal = new FileOutputStream(env("JOURNAL"), true);
        write("start", "\"pid\": " + ProcessHandle.current().pid());
        KafkaStreams streams = new KafkaStreams(topology(), settings());
        streams.setUncaughtExceptionHandler(error -> StreamThreadExceptionResponse.SHUTDOWN_CLIENT);
        streams.setGlobalStateRestoreListener(new Replays());
        boolean stays = !env("INSTANCE").isEmpty();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(CloseOptions
            .groupMembershipOperation(stays ? CloseOptions.GroupMembershipOperation.REMAIN_IN_GROUP
                : CloseOptions.GroupMembershipOperation.LEAVE_GROUP)
            .withTimeout(Duration.ofSeconds(15)))));
        streams.start();
        watch(streams);
    }

    private static String env(String name) {
        return System.getenv("FLEET_" + name);
    }

    private static String milliseconds(double seconds) {
        return Long.toString(Math.round(seconds * 1000));
    }

    private static void configure() throws Exception {
        double session = Double.parseDouble(env("SESSION_S"));
        Map<String, String> group = Map.of(
            "streams.num.standby.replicas", env("REPLICAS"),
            "streams.session.timeout.ms", milliseconds(session),
            "streams.heartbeat.interval.ms", milliseconds(Math.min(1.0, session / 5)),
            "streams.initial.rebalance.delay.ms", "0");
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", env("BOOTSTRAP")))) {
            admin.incrementalAlterConfigs(Map.of(
                new ConfigResource(ConfigResource.Type.GROUP, APP),
                group.entrySet().stream().map(e -> new AlterConfigOp(
                    new ConfigEntry(e.getKey(), e.getValue()), AlterConfigOp.OpType.SET)).toList())).all().get();
        }
    }

    private static Properties settings() {
        Properties settings = new Properties();
        settings.putAll(Map.of(
            "application.id", APP,
            "bootstrap.servers", env("BOOTSTRAP"),
            "group.protocol", "streams",
            "client.id", env("NAME"),
            "state.dir", env("DATA"),
            "num.stream.threads", "1",
            "processing.guarantee", "at_least_once",
            "commit.interval.ms", env("COMMIT_MS"),
            "statestore.cache.max.bytes", "0",
            "auto.offset.reset", "earliest"));
        if (!env("INSTANCE").isEmpty()) {
            settings.put("group.instance.id", env("INSTANCE"));
        }
        return settings;
    }

    private static Topology topology() {
        Topology topology = new Topology();
        for (String source : List.of("customers", "orders")) {
            topology.addSource(source, Serdes.String().deserializer(), Serdes.String().deserializer(),
                APP + "-" + source);
        }
        topology.addProcessor("join", Join::new, "customers", "orders");
        for (String store : List.of("rates", "totals")) {
            topology.addStateStore(Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore(store),
                Serdes.String(), Serdes.String()).withLoggingEnabled(Map.of()), "join");
        }
        return topology;
    }

    /** Tells of other tasks as soon as there are; ends with the streams. */
    private static void watch(KafkaStreams streams) throws InterruptedException {
        Set<Integer> actives = null;
        Set<Integer> standbys = null;
        while (streams.state() != KafkaStreams.State.ERROR && streams.state() != KafkaStreams.State.NOT_RUNNING) {
            Set<Integer> nowActive = new TreeSet<>();
            Set<Integer> nowStandby = new TreeSet<>();
            streams.metadataForLocalThreads().forEach(thread -> {
                nowActive.addAll(partitions(thread.activeTasks()));
                nowStandby.addAll(partitions(thread.standbyTasks()));
            });
            if (!nowActive.equals(actives) || !nowStandby.equals(standbys)) {
                actives = nowActive;
                standbys = nowStandby;
                write("assigned", "\"generation\": 0, \"actives\": " + actives + ", \"standbys\": " + standbys);
            }
            Thread.sleep(20);
        }
        System.exit(streams.state() == KafkaStreams.State.ERROR ? 1 : 0);
    }

    private static Set<Integer> partitions(Set<TaskMetadata> tasks) {
        return tasks.stream().map(task -> task.taskId().partition()).collect(Collectors.toSet());
    }

    private static void write(String kind, String rest) {
        String line = String.format(Locale.ROOT, "{\"kind\": \"%s\", \"at\": %.4f, %s}%n",
            kind, System.currentTimeMillis() / 1000.0, rest);
        try {
            journal.write(line.getBytes(StandardCharsets.UTF_8));
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
    }

    /** The join of one task. */
    private static final class Join implements Processor<String, String, Void, Void> {
        private ProcessorContext<Void, Void> context;
        private KeyValueStore<String, String> rates;
        private KeyValueStore<String, String> totals;

        @Override
        public void init(ProcessorContext<Void, Void> given) {
            context = given;
            rates = context.getStateStore("rates");
            totals = context.getStateStore("totals");
        }

        @Override
        public void process(Record<String, String> record) {
            var source = context.recordMetadata().orElseThrow();
            if (source.topic().endsWith("-customers")) {
                rates.put(record.key(), record.value());
                return;
            }
            totals.put(record.key(), added(totals.get(record.key()), record.value(), rates.get(record.key())));
            write("order", "\"partition\": " + source.partition() + ", \"offset\": " + source.offset());
        }
    }

    private static String added(String before, String order, String rate) {
        Matcher now = ORDER.matcher(order);
        if (!now.find()) {
            throw new IllegalArgumentException(order);
        }
        Matcher was = before == null ? null : TOTAL.matcher(before);
        long amount = Long.parseLong(now.group(2)) + (was != null && was.find() ? Long.parseLong(was.group(1)) : 0);
        return String.format(Locale.ROOT, "{\"amount\": %d, \"numbers\": %d, \"strangers\": %d}", amount,
            Long.parseLong(now.group(1)) + 1, rate == null ? 1 : 0);
    }

    /** How much an active task had to replay before it went on. */
    private static final class Replays implements StateRestoreListener {
        @Override
        public void onRestoreStart(TopicPartition partition, String store, long start, long end) { }

        @Override
        public void onBatchRestored(TopicPartition partition, String store, long end, long count) { }

        @Override
        public void onRestoreEnd(TopicPartition partition, String store, long total) {
            if (store.equals("totals")) {
                write("recovery", "\"generation\": 0, \"replay\": {\"" + partition.partition() + "\": " + total + "}");
            }
        }
    }
}
