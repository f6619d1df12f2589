"""A schedo worker with the standard library only: python3 worker.py [NAME].

It implements docs/protocol.md with one job at a time; each poll reports the previous result.
"""

import http.client
import json
import os
import sys
import threading
import time
import urllib.error
import urllib.request

TASKS = {"increment": lambda payload: {"Num": payload["Num"] + 1}}

URL = os.environ.get("SCHEDO_URL", "http://127.0.0.1:8080") + "/v1/work"
NAME = sys.argv[1] if len(sys.argv) > 1 else f"python-{os.getpid()}"
ME = {"worker": NAME, "session": os.urandom(8).hex(), "tasks": list(TASKS)}
HEADERS = {"content-type": "application/json"}
if "SCHEDO_TOKEN" in os.environ:
    HEADERS["authorization"] = "Bearer " + os.environ["SCHEDO_TOKEN"]


def send(**fields):
    """Send these fields, again and again until there is a response."""
    while True:
        request = urllib.request.Request(URL, json.dumps(ME | fields).encode(), HEADERS)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            print(error, error.read().decode(), file=sys.stderr)
            if error.code in (401, 403, 409):  # the token is wrong, or this worker was replaced
                os._exit(1)
            if error.code in (400, 413, 422):  # the server will never accept these results
                fields["results"] = [refused(each) for each in fields.get("results", [])]
            time.sleep(1)
        # The connection broke before or in the response, or it is not one of the server.
        except (OSError, http.client.HTTPException, ValueError) as error:
            print(repr(error), file=sys.stderr)
            time.sleep(1)


def refused(result):
    reason = {"type": "result-refused", "message": "the server did not take the result"}
    return {"lease": result["lease"], "outcome": "failed", "error": reason, "retryable": False}


def run(lease):
    """Run one attempt and return its result."""
    try:
        result = TASKS[lease["task"]](lease["payload"])
        return {"lease": lease["lease"], "outcome": "completed", "result": result}
    except Exception as error:
        reason = {"type": type(error).__name__, "message": str(error)}
        return {"lease": lease["lease"], "outcome": "failed", "error": reason}


def beat():
    """Give heartbeats, also while a job takes long."""
    while True:
        time.sleep(10)
        send(max_leases=0)


threading.Thread(target=beat, daemon=True).start()
results = []
while True:
    leases = send(running=[], results=results, wait=20)["leases"]
    results = []
    for lease in leases:
        results.append(run(lease))
