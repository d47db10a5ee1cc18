package etcd

import (
	"testing"
	"time"

	"github.com/fencekit/fencekit/internal/configdoc"
)

const configurationPage = "../../docs/configuration.md"

func TestConfig_IsDocumented(t *testing.T) {
	var none *Config
	configdoc.Check(t, configurationPage, "etcd.Config", none.withDefaults(), "Label")
}

func TestClientConfig_IsDocumented(t *testing.T) {
	cfg := ClientConfig("http://127.0.0.1:2379")
	configdoc.Check(t, configurationPage, "etcd.ClientConfig", struct{ DialKeepAliveTime, DialKeepAliveTimeout, DialTimeout time.Duration }{
		cfg.DialKeepAliveTime, cfg.DialKeepAliveTimeout, cfg.DialTimeout,
	})
}
