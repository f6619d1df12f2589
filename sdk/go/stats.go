package schedo

import (
	"net/url"
	"strconv"
	"time"
)

// StatsQuery says what Stats counts. The zero value of each field is its default.
type StatsQuery struct {
	By    string    // task, queue or schedule; by default task
	Since time.Time // by default 7 days ago
	Until time.Time // by default now
	Per   string    // hour or day: also in each of them
	Name  string    // a part of the name
	Exact string    // the whole name
	Limit int       // how many names; those with the most ends come first
}

func (q StatsQuery) encode() string {
	values := url.Values{}
	set := func(name, value string, isSet bool) {
		if isSet {
			values.Set(name, value)
		}
	}
	set("by", q.By, q.By != "")
	set("since", q.Since.Format(time.RFC3339Nano), !q.Since.IsZero())
	set("until", q.Until.Format(time.RFC3339Nano), !q.Until.IsZero())
	set("per", q.Per, q.Per != "")
	set("name", q.Name, q.Name != "")
	set("exact_name", q.Exact, q.Exact != "")
	set("limit", strconv.Itoa(q.Limit), q.Limit != 0)
	return values.Encode()
}

// Times says how long something took in microseconds, within Stats.RelativeError.
type Times struct {
	Count int64 `json:"count"`
	P50   int64 `json:"p50_us"`
	P90   int64 `json:"p90_us"`
	P99   int64 `json:"p99_us"`
	Max   int64 `json:"max_us"`
}

// Ends are the jobs and attempts that ended in a time. Retried are the attempts after which their job went on.
type Ends struct {
	Completed   int64    `json:"completed"`
	Failed      int64    `json:"failed"`
	Cancelled   int64    `json:"cancelled"`
	Expired     int64    `json:"expired"`
	Retried     int64    `json:"retried"`
	FailedShare *float64 `json:"failed_share"` // nil if no job has completed or failed
	Run         *Times   `json:"run"`
	Lateness    *Times   `json:"lateness"`
}

// StatsPoint is what ended in one hour or day.
type StatsPoint struct {
	At time.Time `json:"at"`
	Ends
}

// StatsItem is what ended of one task, queue or schedule.
type StatsItem struct {
	Name   string       `json:"name"`
	Points []StatsPoint `json:"points"`
	Ends
}

// Stats is what ended in a time.
type Stats struct {
	By            string    `json:"by"`
	Since         time.Time `json:"since"`
	Until         time.Time `json:"until"`
	Per           string    `json:"per"`
	RelativeError float64   `json:"relative_error"`
	// All items together, also those left out; and with Per in each hour or day.
	Total   Ends         `json:"total"`
	Points  []StatsPoint `json:"points"`
	Items   []StatsItem  `json:"items"`
	HasMore bool         `json:"has_more"`
}
