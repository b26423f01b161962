-- wrk: posts the file named by the first argument, and reports in one line of JSON.

function init(arguments)
  local file = assert(io.open(arguments[1], "rb"))
  wrk.method = "POST"
  wrk.body = file:read("*a")
  file:close()
end

function done(summary, latency, requests)
  local errors = summary.errors
  print(string.format(
    '{"requests": %d, "duration_us": %d, "p50_us": %d, "p99_us": %d, "failed": ' ..
    '{"connect": %d, "read": %d, "write": %d, "timeout": %d, "status": %d}}',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
    errors.connect, errors.read, errors.write, errors.timeout, errors.status))
end
