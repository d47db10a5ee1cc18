package service

import (
	_ "embed"
	"net/http"
)

//go:embed openapi.yaml
var openAPIFile []byte

// openAPI answers GET /openapi.yaml.
func openAPI(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/yaml")
	_, _ = w.Write(openAPIFile)
	return nil
}
