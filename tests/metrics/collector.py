"""A stand-in for an OpenTelemetry collector: takes OTLP/HTTP with JSON as strictly as the official protobuf classes do.

Arguments: the answers to give, in turn (200, 503, partial). Prints its port, and then one JSON object for each sample of each message that it took."""
import http.server
import json
import sys

from google.protobuf import json_format
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

answers = sys.argv[1:]


class Collector(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        answer = answers.pop(0)
        if answer == "503":
            return self.reply(503, b"")
        assert self.path == "/v1/metrics" and self.headers["Content-Type"] == "application/json", self.path
        message = json_format.Parse(body, ExportMetricsServiceRequest())
        partial = {"partialSuccess": {"rejectedDataPoints": "3", "errorMessage": "three"}} if answer == "partial" else {}
        self.reply(200, json.dumps(partial).encode())
        # Whoever reads this may do so later than whoever waits for the answer.
        self.wfile.flush()
        self.connection.shutdown(2)
        told(message)

    def reply(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def told(message):
    for resource in message.resource_metrics:
        attributes = {one.key: one.value.string_value for one in resource.resource.attributes}
        assert attributes["service.name"] == "pathlab", attributes
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                data = getattr(metric, metric.WhichOneof("data"))
                if metric.HasField("sum"):
                    assert data.is_monotonic and data.aggregation_temporality == 2, metric.name
                for point in data.data_points:
                    assert point.time_unix_nano > 1_600_000_000 * 10**9
                    labels = {one.key: one.value.string_value for one in point.attributes}
                    value = getattr(point, point.WhichOneof("value"))
                    print(json.dumps({"name": metric.name, "unit": metric.unit, "labels": labels, "value": value}))


server = http.server.HTTPServer(("127.0.0.1", 0), Collector)
print(server.server_port, flush=True)
while answers:
    server.handle_request()
