module github.com/fencekit/fencekit/fence/zklock

go 1.26.0

require (
	github.com/fencekit/fencekit v0.0.0
	github.com/go-zookeeper/zk v1.0.4
	github.com/stretchr/testify v1.12.1
)

require go.yaml.in/yaml/v3 v3.0.6 // indirect

replace github.com/fencekit/fencekit => ../..
