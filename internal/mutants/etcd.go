package mutants

const etcd = "fence/etcd/"

// inEtcd is a test of the lock service.
func inEtcd(name string) Test { return Test{"fence/etcd", name} }

// etcdMutants are in keys, queues and watches.
var etcdMutants = []Mutant{
	change("name-is-a-key-as-it-is", "HD15", etcd+"keys.go",
		`url.PathEscape(resource) + "/"`, `resource + "/" + url.PathEscape("")`,
		inEtcd("TestAcquire_NamesDontBlockEachOther_HD15")),
	change("one-key-for-all-goroutines-at-once", "F2 N8", etcd+"keys.go",
		`return fmt.Sprintf("%s%x-%s", k.queue(resource), int64(id), nonce)`, `return fmt.Sprintf("%s%x", k.queue(resource), int64(id))`,
		inEtcd("TestAcquire_GoroutinesExcludeEachOther_F2_N8")).and(goroutinesAtOnce...),
}

// goroutinesAtOnce lets the acquisitions of one process go to etcd side by side.
var goroutinesAtOnce = []Edit{
	{etcd + "localqueue.go", `if t == nil {
		q.turns[resource] = &turns{}
		q.mu.Unlock()
		return nil
	}`, `if t == nil || true {
		q.turns[resource] = &turns{}
		q.mu.Unlock()
		return nil
	}`},
	{etcd + "localqueue.go", `if len(t.waiting) == 0 {
		delete`, `if t == nil || len(t.waiting) == 0 {
		delete`},
	{etcd + "localqueue.go", `q.turns[resource].place = p`, `q.turns[resource] = &turns{place: p}`},
	{etcd + "txns.go", "clientv3.Compare(clientv3.CreateRevision(p.key), \"=\", 0),\n", ""},
}
