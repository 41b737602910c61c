-- SPDX-License-Identifier: MIT OR Apache-2.0
-- wrk: a closed loop, one request per connection.
--
-- The clients of one wrk start spread over STAGGER_MS, not all at once. Processor sharing serves requests that began
-- together so that they also end together, and a count in a window would then jump by the number of clients.

local spread = tonumber(os.getenv("STAGGER_MS") or "0")
local clients = tonumber(os.getenv("CLIENTS") or "1")
local started = 0

wrk.headers["Connection"] = "close"

function delay()
   if started >= clients then return 0 end
   started = started + 1
   return math.floor(spread * (started - 0.5) / clients)
end

function done(summary, latency, requests)
   local e = summary.errors
   io.write(string.format("RESULT {\"requests\": %d, \"not_2xx\": %d, \"socket_errors\": %d, \"timeouts\": %d}\n",
      summary.requests, e.status, e.connect + e.read + e.write, e.timeout))
end
