// Package telemetry has what guardprometheus and guardotel share: the definitions of the
// metrics, and the Observer that records them. An adapter turns the definitions into
// instruments of its own, and records values in them.
package telemetry

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage"
)

// Record adds value to a counter or a gauge, or has a histogram observe it. values are those of the
// metric's Labels, and "" for what it hasn't. It may be called from several goroutines.
type Record func(ctx context.Context, m Metric, value float64, class string, values Values)

// Values are those of a metric's Labels.
type Values [2]string

// Metrics records what Guards do.
type Metrics struct {
	record    Record
	limit     int // of classes
	mu        sync.Mutex
	classes   map[string]bool           // those that were met; otherClass is beyond the limit
	requested map[fence.Grant]time.Time // when the lock was requested, until the grant is claimed or given up
}

const (
	maxClasses = 100
	otherClass = "other" // of the resources for whose own class there is no room
)

// New returns Metrics that tell up to 100 classes apart.
func New(record Record) *Metrics {
	return &Metrics{record: record, limit: maxClasses, classes: map[string]bool{}, requested: map[fence.Grant]time.Time{}}
}

// Observer returns an Observer that records.
func (m *Metrics) Observer() *guard.Observer {
	return &guard.Observer{
		Queued: func(ctx context.Context, resource string, delta int) {
			m.add(ctx, QueueLength, float64(delta), resource, "process")
		},
		Acquiring: func(ctx context.Context, resource string, delta int) {
			m.add(ctx, QueueLength, float64(delta), resource, "lock_service")
		},
		Acquired:  m.acquired,
		LeaseLost: m.leaseLost,
		Released:  m.released,
		Claimed:   m.claimed,
		Rejected:  m.rejected,
		Finished:  m.finished,
	}
}

// Class returns the class of a resource: the part of its name before the first slash, since there may be millions of
// resources. Only the classes that are met first are told apart, so that names without a slash don't make a metric
// each. The counters and gauges of a new class begin at 0: then a first event is seen as a rise.
func (m *Metrics) Class(ctx context.Context, resource string) string {
	class, _, _ := strings.Cut(resource, "/")
	if class == "" {
		class = "/" // a label must not be empty
	}
	m.mu.Lock()
	if !m.classes[class] && len(m.classes) >= m.limit {
		class = otherClass
	}
	fresh := !m.classes[class]
	if fresh {
		class = strings.Clone(class) // it is part of a name, which it would keep
		m.classes[class] = true
	}
	m.mu.Unlock()
	if !fresh {
		return class
	}
	for metric, d := range Definitions {
		if d.Kind == Histogram {
			continue
		}
		for _, values := range d.combinations() {
			m.record(ctx, Metric(metric), 0, class, values)
		}
	}
	return class
}

// combinations returns all values of d's Labels.
func (d Definition) combinations() []Values {
	all := []Values{{}}
	for i, label := range d.Labels {
		var longer []Values
		for _, values := range all {
			for _, values[i] = range label.Values {
				longer = append(longer, values)
			}
		}
		all = longer
	}
	return all
}

func (m *Metrics) add(ctx context.Context, metric Metric, value float64, resource, label string) {
	m.record(ctx, metric, value, m.Class(ctx, resource), Values{label})
}

func (m *Metrics) acquired(ctx context.Context, grant fence.Grant, wait time.Duration) {
	m.mu.Lock()
	m.requested[grant] = time.Now().Add(-wait)
	m.mu.Unlock()
	m.add(ctx, Acquires, 1, grant.Resource, "")
	m.add(ctx, AcquireDuration, wait.Seconds(), grant.Resource, "")
	m.add(ctx, LocksHeld, 1, grant.Resource, "")
}

func (m *Metrics) released(grant fence.Grant, _ error) {
	m.takeRequested(grant)
	m.add(context.Background(), LocksHeld, -1, grant.Resource, "")
}

// claimed records a takeover once for each lock. A grant that came from elsewhere was not
// requested here.
func (m *Metrics) claimed(ctx context.Context, grant fence.Grant, _ time.Duration) {
	if requested, ok := m.takeRequested(grant); ok {
		m.add(ctx, TakeoverDuration, time.Since(requested).Seconds(), grant.Resource, "")
	}
}

func (m *Metrics) takeRequested(grant fence.Grant) (requested time.Time, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	requested, ok = m.requested[grant]
	delete(m.requested, grant)
	return requested, ok
}

func (m *Metrics) leaseLost(lost *fence.LeaseLostError, inUse bool) {
	ctx := context.Background()
	m.record(ctx, LeasesLost, 1, m.Class(ctx, lost.Grant.Resource), Values{lossLabel(lost.Reason), strconv.FormatBool(inUse)})
}

func (m *Metrics) rejected(ctx context.Context, r *guard.RejectedError) {
	m.add(ctx, Rejections, 1, r.Grant.Resource, ReasonLabel(r.Reason))
	if r.Current.Epoch == r.Grant.Epoch && r.Current.Token > r.Grant.Token { // else they can't be compared
		m.add(ctx, TokenLag, float64(r.Current.Token-r.Grant.Token), r.Grant.Resource, "")
	}
}

// finished counts a call of several resources once for each class that it names.
func (m *Metrics) finished(ctx context.Context, operation guard.Operation) {
	var done []string
	for _, resource := range operation.Resources {
		of := m.Class(ctx, resource)
		if slices.Contains(done, of) {
			continue
		}
		done = append(done, of)
		count, kind := Writes, "write"
		if operation.ReadOnly {
			count, kind = Reads, "read"
		}
		m.record(ctx, count, 1, of, Values{string(operation.Outcome)})
		m.record(ctx, Duration, operation.Took.Seconds(), of, Values{kind})
		if operation.BatchSize > 0 && operation.BatchPlace == 0 { // one of those that share a transaction
			m.record(ctx, BatchSize, float64(operation.BatchSize), of, Values{})
		}
	}
}

var lossLabels = map[fence.LossReason]string{
	fence.LossDeadline: "deadline",
	fence.LossExpired:  "expired",
	fence.LossDeleted:  "deleted",
	fence.LossClosed:   "closed",
	fence.LossWentBack: "went_back",
	fence.LossEpoch:    "epoch",
}

func lossLabel(r fence.LossReason) string {
	if label, ok := lossLabels[r]; ok {
		return label
	}
	return unlisted
}

// ReasonLabel returns the label of a reason: its text, with underscores for spaces.
func ReasonLabel(r storage.Reason) string {
	if label := strings.ReplaceAll(string(r), " ", "_"); slices.Contains(reasons, label) {
		return label
	}
	return unlisted
}
