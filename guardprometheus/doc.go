// Package guardprometheus exports metrics of Guards to Prometheus:
//
//	metrics, err := guardprometheus.NewObserver(prometheus.DefaultRegisterer, nil)
//	…
//	g, err := fencekit.New(client, pool, &fencekit.Config{Guard: guard.Config{Observers: []*guard.Observer{metrics}}})
//
// docs/operate.md has a table of the metrics. They are labelled by the class of
// the resource, which is the part of its name before the first slash, and never by the resource.
//
// Not covered: a Locker, or an election of one, that is used without the Guard. A paused process reports
// only once it is resumed.
package guardprometheus
