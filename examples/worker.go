// A schedo worker for Go 1.21 or newer, with the standard library only: go run worker.go [NAME].
// It implements docs/protocol.md with one job at a time; each poll reports the previous result.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"os"
	"time"
)

type object map[string]any

type answer struct {
	Detail string // of an error
	Leases []struct {
		Lease, Task string
		Payload     json.RawMessage
	}
}

var tasks = map[string]func(json.RawMessage) (any, error){
	"increment": func(payload json.RawMessage) (any, error) {
		var in struct{ Num int }
		err := json.Unmarshal(payload, &in)
		return object{"Num": in.Num + 1}, err
	},
}
var url = "http://127.0.0.1:8080"
var me = object{"worker": fmt.Sprint("go-", os.Getpid()), "session": fmt.Sprint(time.Now().UnixNano()), "tasks": []string{"increment"}}

// send repeats a request with these fields until it gets a response.
func send(fields object) (got answer) {
	for key, value := range me {
		fields[key] = value
	}
	for {
		body, _ := json.Marshal(fields)
		request, _ := http.NewRequest("POST", url+"/v1/work", bytes.NewReader(body))
		request.Header.Set("Content-Type", "application/json")
		if token := os.Getenv("SCHEDO_TOKEN"); token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		response, err := (&http.Client{Timeout: time.Minute}).Do(request)
		if err == nil {
			err = json.NewDecoder(response.Body).Decode(&got)
			response.Body.Close()
			if err == nil && response.StatusCode == 200 {
				return got
			}
			if err == nil {
				err = fmt.Errorf("%s: %s", response.Status, got.Detail)
			}
			switch response.StatusCode {
			case 401, 403, 409: // wrong token, or replaced
				log.Fatal(err)
			case 400, 413, 422: // the server will never accept these results
				for _, result := range fields["results"].([]object) {
					result["outcome"], result["retryable"] = "failed", false
					result["error"] = object{"type": "result-refused", "message": "the server did not take the result"}
					delete(result, "result")
				}
			}
		}
		log.Print(err)
		time.Sleep(time.Second)
	}
}

func main() {
	if server := os.Getenv("SCHEDO_URL"); server != "" {
		url = server
	}
	if len(os.Args) > 1 {
		me["worker"] = os.Args[1]
	}
	go func() { // heartbeats, so that a long job does not look like a dead worker
		for range time.Tick(10 * time.Second) {
			send(object{"max_leases": 0, "results": []object{}})
		}
	}()
	results := []object{}
	for {
		got := send(object{"running": []string{}, "results": results, "wait": 20})
		results = []object{}
		for _, given := range got.Leases {
			result := object{"lease": given.Lease, "outcome": "completed"}
			value, err := tasks[given.Task](given.Payload)
			if result["result"] = value; err != nil {
				result = object{"lease": given.Lease, "outcome": "failed", "error": object{"type": "error", "message": err.Error()}}
			}
			results = append(results, result)
		}
	}
}
