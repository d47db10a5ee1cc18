package fault

// Kind is a kind of fault, for those who choose or read a schedule.
type Kind struct {
	Name     string // the first word of Fault.String
	Sentence string // what it does
}

// Kinds are all kinds of faults.
func Kinds() []Kind {
	return []Kind{
		{"pause", "stops a worker by SIGSTOP, anywhere or at a point of an operation"},
		{"stop-the-world", "has a worker's Go runtime stop all its goroutines, as its garbage collector does"},
		{"kill", "ends a worker by SIGKILL, anywhere or at a point of an operation, and starts it anew"},
		{"partition", "silences a worker's links to etcd, Postgres or both, in one direction or in both"},
		{"delay", "has all between a worker and a server arrive later"},
		{"half-open", "has the far end of a worker's connections vanish without a word"},
		{"reset", "resets a worker's connections to a server"},
		{"revoke", "revokes the lease of somebody who holds or awaits a lock"},
		{"delete-lock", "deletes the key of somebody who holds or awaits a lock"},
		{"etcd-pause", "stops a member of etcd by SIGSTOP"},
		{"etcd-kill", "ends a member of etcd by SIGKILL, and starts it again"},
		{"etcd-isolate", "cuts a member of etcd off from the others, but not from workers"},
		{"etcd-compact", "has etcd forget all older revisions of its keys"},
		{"etcd-nospace", "raises the alarm of an etcd that has used up its quota"},
		{"postgres-crash", "ends Postgres without a checkpoint, and lets it recover"},
		{"postgres-pause", "has Postgres take no new connections, silently"},
		{"terminate", "ends a worker's Postgres backend in the midst of a transaction"},
		{"commit-swallowed", "loses a worker's COMMIT on its way to Postgres, and cuts the connection"},
		{"commit-unheard", "loses the answer to a worker's COMMIT, and cuts the connection"},
		{"commit-held", "cuts the connection of a worker that commits, and delivers the COMMIT later"},
	}
}
