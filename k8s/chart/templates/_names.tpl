{{- define "berth.namespace" -}}
{{- .Values.namespace.name | default .Release.Namespace -}}
{{- end -}}

{{- define "berth.image" -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end -}}

{{- define "berth.labImage" -}}
{{- printf "%s-lab:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end -}}

{{- /* Nine tenths of a volume: the rest is for what NATS keeps beside its streams. */ -}}
{{- define "berth.fileStore" -}}
{{- printf "max_file_store: %dGB" (div (mul 9 (trimSuffix "Gi" .Values.nats.storage.size | int)) 10) -}}
{{- end -}}

{{- /* Name of a ConfigMap with the hash that kustomize gives it: a change of its content restarts who reads it. */ -}}
{{- define "berth.configMap" -}}
{{- $root := index . 0 -}}
{{- $name := index . 1 -}}
{{- $data := include (printf "berth.data.%s" $name) $root | fromYaml -}}
{{- $hash := dict "data" $data "kind" "ConfigMap" "name" "" | toJson | sha256sum | trunc 10 -}}
{{- $hash = $hash | replace "0" "g" | replace "1" "h" | replace "3" "k" | replace "a" "m" | replace "e" "t" -}}
{{- printf "%s-%s" $name $hash -}}
{{- end -}}
