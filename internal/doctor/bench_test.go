package doctor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
)

// BenchmarkExamine_AMillionFences examines a database with a million fences, three million entries and a
// second schema with as many other fences, and its etcd.
func BenchmarkExamine_AMillionFences(b *testing.B) {
	p := newPatient(b)
	p.fences("1000000")
	p.sql("update fence.resource set epoch = 2; update fence.setting set epoch = 2") // of another etcd
	p.migrate("other")
	p.sql("insert into other.resource select * from fence.resource")
	p.sql("alter table other.resource disable trigger all; update other.resource set name = 'other/' || name")
	p.sql("vacuum analyze")
	client, err := etcdserver.Shared(b).Client(b.Context())
	require.NoError(b, err)
	defer client.Close()
	_, err = client.Put(b.Context(), "million/epoch", "3")
	require.NoError(b, err)
	service := &Etcd{Client: client, Prefix: "million", TTL: 10 * time.Second}
	b.ReportAllocs()
	for b.Loop() {
		r := Examine(b.Context(), service, []Database{{Name: "db", Pool: p.pool, Schema: "fence"}}, Limits{Statement: 10 * time.Minute, Scan: 10 * time.Minute})
		r.Ignore([]string{"durability-off"}) // the shared Postgres runs without fsync
		require.Empty(b, r.Findings)
	}
}
