import com.sun.net.httpserver.HttpServer;

import io.github.topdeck.*;

import java.net.InetSocketAddress;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicLong;

/**
 * A small server whose requests are recorded: {@code Server [PORT]}. Look at it with {@code topdeck
 * top}; or stop it with kill -9 and run {@code topdeck post-mortem}.
 */
public final class Server {
    public static void main(String[] args) throws Exception {
        Histogram took = new Histogram(new Description("http_server_request_duration").unit("ns")
                .help("Time to answer a request.").role(Role.TIMING));
        InFlight requests = new InFlight(new Description("http_server_requests_in_flight")
                .help("Requests that are being answered."), "method");
        int get = Topdeck.tag("GET");
        new Text(new Description("version")).set("1.0.0");
        AtomicLong number = new AtomicLong();
        int port = args.length > 0 ? Integer.parseInt(args[0]) : 8080;
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", port), 0);
        server.createContext("/", exchange -> {
            try (exchange;
                    var operation = requests.begin(number.incrementAndGet(), get);
                    var timer = took.start()) {
                // One in a hundred is slow.
                if (ThreadLocalRandom.current().nextInt(100) == 0) {
                    Thread.sleep(20);
                }
                byte[] text = ("item " + exchange.getRequestURI() + "\n").getBytes();
                exchange.sendResponseHeaders(200, text.length);
                exchange.getResponseBody().write(text);
            } catch (InterruptedException error) {
                Thread.currentThread().interrupt();
            }
        });
        try {
            System.out.println("look at it with `topdeck top`; the file is " + Topdeck.path());
        } catch (MetricException error) {
            System.out.println("no metrics: " + error.getMessage());
        }
        server.start();
    }
}
