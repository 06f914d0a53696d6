// Requests at a constant rate, independent of responses; the summary as JSON.
import http from "k6/http";

export const options = {
  discardResponseBodies: true,
  scenarios: {
    rate: {
      executor: "constant-arrival-rate",
      rate: Number(__ENV.RATE),
      timeUnit: "1s",
      duration: __ENV.DURATION,
      preAllocatedVUs: Number(__ENV.USERS),
      gracefulStop: "60s",
    },
  },
};

export default function () {
  http.get(__ENV.TARGET, { timeout: "300s" });
}

export function handleSummary(data) {
  return { stdout: JSON.stringify(data.metrics) };
}
