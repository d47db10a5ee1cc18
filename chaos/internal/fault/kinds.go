package fault

// Kind is a kind of fault.
type Kind struct {
	Name    string // the first word of Fault.String
	Summary string // what it does, in a sentence
}

// Kinds are all kinds of faults.
func Kinds() []Kind {
	return []Kind{
		{"pause", "stops a worker by SIGSTOP, anywhere or at a point of an operation"},
		{"stop-the-world", "stops all goroutines of a worker by its Go runtime, as the garbage collector does"},
		{"kill", "ends a worker by SIGKILL, anywhere or at a point of an operation, and restarts it"},
		{"partition", "silences a worker's links to etcd, Postgres or both, in one direction or in both"},
		{"delay", "delays everything between a worker and a server"},
		{"half-open", "silences a worker's connections for good, without an error on either end"},
		{"reset", "resets a worker's connections to a server"},
		{"revoke", "revokes the lease of a holder of a lock, or of a waiter"},
		{"delete-lock", "deletes the lock key of a holder, or of a waiter"},
		{"etcd-pause", "stops a member of etcd by SIGSTOP"},
		{"etcd-kill", "ends a member of etcd by SIGKILL, and restarts it"},
		{"etcd-isolate", "cuts a member of etcd off from the others, but not from workers"},
		{"etcd-compact", "compacts etcd: all older revisions of its keys are gone"},
		{"etcd-nospace", "raises etcd's alarm for a used-up quota"},
		{"postgres-crash", "ends Postgres without a checkpoint, and lets it recover"},
		{"postgres-pause", "stops Postgres from accepting new connections, silently"},
		{"terminate", "terminates a worker's Postgres backend in mid-transaction"},
		{"commit-swallowed", "loses a worker's COMMIT on its way to Postgres, and cuts the connection"},
		{"commit-unheard", "loses the answer to a worker's COMMIT, and cuts the connection"},
		{"tamper", "changes an entry of the history, as the owner of its table"},
		{"commit-held", "cuts the connection of a worker that commits, and delivers the COMMIT later"},
	}
}
