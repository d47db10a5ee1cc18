package result

import "time"

// Suite is several runs, and what they show together.
type Suite struct {
	Started  time.Time         `json:"started"`
	Took     time.Duration     `json:"took"`     // ns
	Command  string            `json:"command"`  // that repeats it
	Versions map[string]string `json:"versions"` // of what took part: fencekit, go, etcd, postgres, redis
	Verdict  Verdict           `json:"verdict"`
	Reason   string            `json:"reason"` // of the verdict, one sentence with figures
	Runs     []Run             `json:"runs"`
}
