package demo

import (
	"errors"
	"flag"
	"fmt"

	"github.com/fencekit/fencekit/examples/inventory/service"
)

// ParseDemo reads the command line of "inventory demo", which takes no flags besides --help.
func ParseDemo(args []string) (struct{}, error) {
	flags := flag.NewFlagSet("inventory demo", flag.ContinueOnError)
	if err := flags.Parse(args); err != nil {
		return struct{}{}, err
	}
	return struct{}{}, noMore(flags)
}

// ParseTry reads the command line of "inventory try".
func ParseTry(args []string) (service.Config, error) {
	cfg, _ := service.ParseServe(nil) // the defaults
	flags := flag.NewFlagSet("inventory try", flag.ContinueOnError)
	flags.StringVar(&cfg.Listen, "listen", cfg.Listen, "address to serve HTTP on; there is no authentication")
	return cfg, errors.Join(flags.Parse(args), noMore(flags))
}

// ParseWorker reads the command line of a worker.
func ParseWorker(args []string) (WorkerConfig, error) {
	var cfg WorkerConfig
	flags := flag.NewFlagSet("inventory worker", flag.ContinueOnError)
	flags.StringVar(&cfg.name, "name", "worker", "label of the worker")
	flags.StringVar(&cfg.endpoint, "etcd", "http://127.0.0.1:2379", "endpoint of etcd")
	flags.StringVar(&cfg.dsn, "postgres", "", "connection string of the database")
	flags.StringVar(&cfg.prefix, "prefix", "inventory", "prefix of the keys in etcd")
	flags.BoolVar(&cfg.fenced, "fenced", true, "use guard.Do; otherwise only the lock")
	flags.IntVar(&cfg.pauseAt, "pause-at", 0, "stop between read and write once, when so few units are available")
	return cfg, flags.Parse(args)
}

func noMore(flags *flag.FlagSet) error {
	if flags.NArg() > 0 {
		return fmt.Errorf("%s: what is %q?", flags.Name(), flags.Args())
	}
	return nil
}
