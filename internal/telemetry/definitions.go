package telemetry

import "github.com/fencekit/fencekit/guard"

// ClassLabel is the label, or attribute, that each metric has: the resource's class.
const ClassLabel = "class"

// Metric is an index of Definitions.
type Metric int

// The metrics.
const (
	Acquires Metric = iota
	AcquireDuration
	LocksHeld
	QueueLength
	LeasesLost
	Writes
	Reads
	Duration
	BatchSize
	TokenLag
	TakeoverDuration
	Rejections
)

// Kind is what a metric does.
type Kind int

// The kinds.
const (
	Counter   Kind = iota // only rises
	Gauge                 // rises and falls, by what is recorded
	Histogram             // counts what is recorded in buckets
)

// Definition defines a metric. Its name in OpenTelemetry is such that an exporter to Prometheus
// makes Name of it.
type Definition struct {
	Name    string // in Prometheus
	OTel    string // in OpenTelemetry
	Help    string
	Kind    Kind
	Unit    string    // in OpenTelemetry
	Labels  []Label   // that the metric has besides ClassLabel; at most two
	Buckets []float64 // upper bounds, of a Histogram
}

// Label is a label, or attribute, of a metric.
type Label struct {
	Name   string
	Values []string // all that there are
}

// What the labels can be.
var (
	outcomes = []string{
		string(guard.OutcomeCommitted), string(guard.OutcomeRepeated), string(guard.OutcomeFailed),
		string(guard.OutcomeRejected), string(guard.OutcomeUnknown), string(guard.OutcomePanicked),
	}
	kinds   = []string{"write", "read"}
	inUse   = []string{"false", "true"}
	queues  = []string{"process", "lock_service"}
	losses  = []string{"deadline", "expired", "deleted", "closed", "went_back", "epoch", unlisted}
	reasons = []string{"stale", "overtaken", "collision", "epoch_behind", "tokens_went_back", "token_jump", "went_back", "failed_over", unlisted}
)

// unlisted is the label of a reason that a lock service or a store of the user's has made up.
const unlisted = "other"

// seconds are bounds for durations from a fast database's to those of leases that run out.
var seconds = []float64{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 30, 60}

// Definitions are those of all metrics.
var Definitions = [...]Definition{
	Acquires: {
		Name: "fence_acquires_total", OTel: "fence.acquires", Kind: Counter, Unit: "{lock}",
		Help: "Locks that the lock service granted.",
	},
	AcquireDuration: {
		Name: "fence_acquire_duration_seconds", OTel: "fence.acquire.duration", Kind: Histogram, Unit: "s", Buckets: seconds,
		Help: "How long the lock service took to grant a lock, with the wait for other processes.",
	},
	LocksHeld: {
		Name: "fence_locks_held", OTel: "fence.locks_held", Kind: Gauge, Unit: "{lock}",
		Help: "Locks that the process was granted and has not given up, also those that it keeps for the next call.",
	},
	QueueLength: {
		Name: "fence_queue_length", OTel: "fence.queue_length", Kind: Gauge, Unit: "{call}", Labels: []Label{{"queue", queues}},
		Help: "Calls that wait for a resource: for their turn in the process, or for the lock service.",
	},
	LeasesLost: {
		Name: "fence_leases_lost_total", OTel: "fence.leases_lost", Kind: Counter, Unit: "{lock}", Labels: []Label{{"reason", losses}, {"in_use", inUse}},
		Help: "Locks that ended without being given up, while a call used them or not.",
	},
	Writes: {
		Name: "guard_writes_total", OTel: "guard.writes", Kind: Counter, Unit: "{call}", Labels: []Label{{"outcome", outcomes}},
		Help: "Guarded calls that may write, by how they ended.",
	},
	Reads: {
		Name: "guard_reads_total", OTel: "guard.reads", Kind: Counter, Unit: "{call}", Labels: []Label{{"outcome", outcomes}},
		Help: "Guarded calls that only read, by how they ended.",
	},
	Duration: {
		Name: "guard_duration_seconds", OTel: "guard.duration", Kind: Histogram, Unit: "s", Labels: []Label{{"kind", kinds}}, Buckets: seconds,
		Help: "How long guarded calls took, with all waiting.",
	},
	BatchSize: {
		Name: "guard_batch_size", OTel: "guard.batch_size", Kind: Histogram, Unit: "{call}", Buckets: []float64{1, 2, 4, 8, 16, 32, 64},
		Help: "How many calls shared a transaction.",
	},
	TokenLag: {
		Name: "guard_token_lag", OTel: "guard.token_lag", Kind: Histogram, Unit: "{revision}", Buckets: []float64{1, 10, 100, 1e3, 1e4, 1e5, 1e6},
		Help: "How far a rejected token was behind the one that had the fence, in the lock service's revisions.",
	},
	TakeoverDuration: {
		Name: "guard_takeover_duration_seconds", OTel: "guard.takeover.duration", Kind: Histogram, Unit: "s", Buckets: seconds,
		Help: "How long it took from asking for a lock until the claim had committed, so that a function could run.",
	},
	Rejections: {
		Name: "guard_rejections_total", OTel: "guard.rejections", Kind: Counter, Unit: "{rejection}", Labels: []Label{{"reason", reasons}},
		Help: "Grants that the fence rejected, by reason.",
	},
}
