package postgres

import (
	"testing"

	"github.com/fencekit/fencekit/internal/configdoc"
)

func TestConfig_IsDocumented(t *testing.T) {
	var none *Config
	configdoc.Check(t, "../../docs/configuration.md", "postgres.Config", none.withDefaults())
}
