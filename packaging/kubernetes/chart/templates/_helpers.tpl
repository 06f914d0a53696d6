{{- define "topdeck.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- /* Capabilities of the agent: a list without duplicates, in a fixed order. */ -}}
{{- define "topdeck.capabilities" -}}
{{- $sources := .Values.agent.sources -}}
{{- $names := list -}}
{{- if or $sources.bpf $sources.wireTls }}{{ $names = concat $names (list "BPF" "PERFMON") }}{{ end -}}
{{- if $sources.wire }}{{ $names = append $names "NET_RAW" }}{{ end -}}
{{- if $sources.wireTls }}{{ $names = append $names "CHECKPOINT_RESTORE" }}{{ end -}}
{{- if $sources.programs }}{{ $names = append $names "DAC_READ_SEARCH" }}{{ end -}}
{{- if or $sources.wireTls $sources.programs }}{{ $names = append $names "SYS_PTRACE" }}{{ end -}}
{{- toJson $names -}}
{{- end }}

{{- define "topdeck.agentSettings" -}}
{{- if .Values.agent.settings -}}
{{ .Values.agent.settings }}
{{- else -}}
data_dir = "/var/lib/topdeck-agent"

[http]
listen = ["127.0.0.1:7717"]

[[remote]]
name = "server"
url = "http://{{ .Release.Name }}:7717"
token_file = "/etc/topdeck-token/token"
{{ end -}}
{{- end }}
