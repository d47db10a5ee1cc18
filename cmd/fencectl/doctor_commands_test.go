package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/doctor"
)

// A command repeats the flags that it takes, of its own database, and no password.
func TestDoctor_CommandsRepeatItsFlags(t *testing.T) {
	t.Parallel()
	d := &doctorFlags{ttl: time.Second}
	servers := d.servers()
	require.NoError(t, servers.Parse([]string{
		"--etcd-prefix", "shop's", "--etcd-endpoints", "https://a:1,https://b:1", "--etcd-user", "app", "--schema", "other",
		"--database-url", "postgres://me:s3cret@h1:1/one", "--database-url", "host=h2 port=2 dbname=two password = 's3 \\' cret' sslpassword=s3cret user=me",
	}))
	require.NoError(t, d.prepare(servers))
	const etcd = ` --etcd-endpoints https://a:1,https://b:1 --etcd-prefix 'shop'\''s' --etcd-user app`
	one, two := " --database-url postgres://me@h1:1/one", " --database-url 'host=h2 port=2 dbname=two user=me'"
	for command, want := range map[string]string{
		"fencectl epoch bump --reason 'a b'":                             "fencectl epoch bump" + etcd + one + two + " --schema other --reason 'a b'",
		"fencectl exec 'it'\\''s' --claim -- true":                       "fencectl exec" + etcd + two + " --schema other 'it'\\''s' --claim -- true",
		"fencectl migrate up --schema other":                             "fencectl migrate up" + two + " --schema other",
		"fencectl protect t --schema other --resource r --mode m":        "fencectl protect" + two + " t --schema other --resource r --mode m",
		"alter system set fsync = on;":                                   "alter system set fsync = on;",
		"ETCDCTL_ENDPOINTS=https://a:1,https://b:1 etcdctl alarm disarm": "ETCDCTL_USER=root ETCDCTL_ENDPOINTS=https://a:1,https://b:1 etcdctl alarm disarm",
	} {
		found := []doctor.Finding{{Server: d.databases.names[1], Run: []string{command}}}
		d.repeatFlags(found)
		require.Equal(t, []string{want}, found[0].Run)
	}
	d = &doctorFlags{etcd: etcdFlags{caCert: "/a b/ca.pem", cert: "c.pem", key: "k.pem"}}
	require.Equal(t, "ETCDCTL_CACERT='/a b/ca.pem' ETCDCTL_CERT=c.pem ETCDCTL_KEY=k.pem ETCDCTL_ENDPOINTS=a:1 etcdctl defrag", d.repeated("ETCDCTL_ENDPOINTS=a:1 etcdctl defrag", "etcd"))
	for dsn, want := range map[string]string{
		"postgres://h/db?password=s3cret&sslmode=disable": "postgres://h/db?sslmode=disable",
		"postgres://me:s3%40cret@h1:1,h2:2/db?a=b":        "postgres://me@h1:1,h2:2/db?a=b",
		"PASSWORD=s3cret\\ more host=h":                   "host=h",
		"password='' host=h":                              "host=h",
	} {
		require.Equal(t, want, withoutPassword(dsn))
	}
}

// What a variable says, the commands read themselves.
func TestDoctor_CommandsRepeatNoVariables(t *testing.T) {
	t.Setenv("FENCEKIT_ETCD_PREFIX", "shop")
	d := &doctorFlags{ttl: time.Second}
	servers := d.servers()
	require.NoError(t, d.prepare(servers))
	require.Equal(t, "shop", d.etcd.prefix)
	require.Equal(t, "fencectl epoch bump --reason x", d.repeated("fencectl epoch bump --reason x", "etcd"))
}
