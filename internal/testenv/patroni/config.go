package patroni

import (
	"encoding/json"
	"os"

	"github.com/fencekit/fencekit/internal/testenv/process"
)

// Config says how to run a cluster. nil means all defaults.
type Config struct {
	// Synchronous makes a COMMIT wait for a standby, and only that one may become the
	// primary: Patroni's synchronous_mode and synchronous_mode_strict. Default: a standby
	// becomes the primary without what it hasn't received.
	Synchronous bool
}

// Patroni's times, in seconds.
const (
	loopWait = 1
	// Patroni 3.0.2 never takes over the leader key with a retryTimeout of 1.
	retryTimeout = 2
	// ttl is how long a silent primary remains the primary. Patroni takes no shorter one.
	ttl = loopWait + 2*retryTimeout
)

const scope = "fencekit"

type section = map[string]any

// configuration is a node's configuration, in JSON, which is YAML as well.
func (n *Node) configuration() ([]byte, error) {
	settings := map[string]string{
		"max_connections": "200", "wal_level": "logical", "timezone": "UTC", "unix_socket_directories": "",
		"dynamic_shared_memory_type": "mmap",                             // a killed server leaves nothing in /dev/shm
		"wal_log_hints":              "on",                               // for pg_rewind
		"wal_sender_timeout":         "5s", "wal_receiver_timeout": "5s", // so that a link that was cut is noticed
		"wal_retrieve_retry_interval": "500ms", // no write is acknowledged before a standby follows the new primary
	}
	user := section{"username": "postgres"}
	everyone := []string{"host all all 127.0.0.1/32 trust", "host replication all 127.0.0.1/32 trust"}
	return json.MarshalIndent(section{
		"scope": scope,
		"name":  n.name,
		"restapi": section{
			"listen": n.Address(restPort), "connect_address": n.restLink.Addr(),
		},
		// As proxies they are not replaced by the addresses that etcd itself announces.
		"etcd3": section{"hosts": n.etcdAddresses(), "protocol": "http", "use_proxies": true},
		"bootstrap": section{
			"dcs": section{
				"ttl":                     ttl,
				"loop_wait":               loopWait,
				"retry_timeout":           retryTimeout,
				"primary_start_timeout":   0,
				"maximum_lag_on_failover": 64 << 20,
				"synchronous_mode":        n.cfg.Synchronous,
				"synchronous_mode_strict": n.cfg.Synchronous,
				"ignore_slots":            []any{section{"type": "logical", "plugin": "test_decoding"}}, // else Patroni drops those of others
				"postgresql":              section{"use_pg_rewind": true, "parameters": settings},
			},
			"initdb": []any{section{"encoding": "UTF8"}, section{"locale": "C"}, section{"auth": "trust"}},
		},
		"postgresql": section{
			"listen": n.Address(postgresPort), "connect_address": n.pgLink.Addr(),
			"data_dir": n.data(), "bin_dir": n.programs.postgres, "pgpass": n.Dir().Path("patroni/pgpass"),
			"authentication": section{"superuser": user, "replication": user, "rewind": user},
			"pg_hba":         everyone,
			"remove_data_directory_on_rewind_failure":     true,
			"remove_data_directory_on_diverged_timelines": true,
		},
		"watchdog": section{"mode": "off"},
	}, "", "  ")
}

// writeFile writes a file of a new directory, which only the account can enter.
func writeFile(account *process.Account, dir, name string, text []byte) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	file := dir + "/" + name
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return err
	}
	if err := account.Own(file); err != nil {
		return err
	}
	return account.Own(dir)
}
